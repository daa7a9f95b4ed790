"""A terminal of tmux in which a client runs."""

import subprocess
import time


class Terminal:
    def __init__(self, name, command, environment, folder):
        self.socket = f"mb-real-{name}"
        pairs = [f"{key}={value}" for key, value in environment.items()]
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "140", "-y", "45", "-c", folder, "env", "-i", *pairs, *command)

    def _tmux(self, *arguments):
        return subprocess.run(["tmux", "-L", self.socket, *arguments], capture_output=True, text=True, check=False)

    def screen(self):
        return self._tmux("capture-pane", "-p").stdout

    def type(self, text):
        self._tmux("send-keys", "-l", text)

    def press(self, key):
        self._tmux("send-keys", key)

    def wait_for(self, wanted, seconds=30):
        """Waits until the screen shows one of these texts and returns it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            screen = self.screen()
            for text in wanted:
                if text in screen:
                    return text
            time.sleep(0.1)
        raise TimeoutError(f"the screen does not show {wanted}:\n{self.screen()}")

    def close(self):
        self._tmux("kill-server")

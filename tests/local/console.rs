//! The console of a person and the broker of a user: it starts one, comes back when it is killed, and rests.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    home::Home,
    rest::{WINDOW, is_idle, waits},
    screen::Screen,
    support::eventually,
};

/// How long the work of a console that has just started may go on.
const SETTLING_MAX: Duration = Duration::from_secs(100);

/// A console in a terminal, in the folders of a user.
fn console(user: &Home) -> Screen {
    let home = user.path.display();
    let environment = format!(
        "HOME={home} XDG_RUNTIME_DIR={home}/run XDG_STATE_HOME={home}/state MCP_BROKER_PORT=0 USER=mara PATH=/usr/bin:/bin"
    );
    Screen::start((80, 24), &environment, "console")
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_console_starts_the_broker_of_its_user_and_outlives_it() {
    let user = Home::new();
    let screen = console(&user);
    screen.shows("mara ● present");
    assert_eq!(user.brokers().len(), 1);
    user.kill_broker();
    eventually("another broker runs", || (user.brokers().len() == 1).then_some(()));
    screen.shows("mara ● present");
    screen.presses(&["q"]);
    assert_eq!(screen.ends(), 0);
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn an_idle_console_sleeps() {
    let user = Home::new();
    let screen = console(&user);
    screen.shows("mara ● present");
    let shell = screen.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let shell = shell.trim();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let pid = children.trim().parse().unwrap();
    let (mut begun, mut before) = (Instant::now(), waits(pid));
    let until = Instant::now() + SETTLING_MAX;
    while begun.elapsed() < WINDOW {
        assert!(Instant::now() < until, "the last waits: {:?}", waits(pid));
        thread::sleep(WINDOW / 50);
        let after = waits(pid);
        if !is_idle(&before, &after) {
            (begun, before) = (Instant::now(), after);
        }
    }
    screen.presses(&["?"]);
    screen.shows("any key closes the help");
}

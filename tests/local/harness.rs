//! The client of an agent, byte for byte as Claude Code or Codex act towards their servers and hooks: the recorded
//! handshake, the inbox socket, the gate of channels, the runner of hooks, calls in the background, the queue.
//!
//! The test is the model: it waits for the turns that the client begins, and calls tools in them.

use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    connect::recorded,
    front::{Front, FrontBuilder},
    home::{Done, Home, Running},
    support::eventually,
    ways::{CodexProgram, INBOX_SILENCE, Inbox, InboxRule, Prompt, TOKEN, Turn},
};

/// The conversation of a client.
pub const CONVERSATION: &str = "c-1";

/// A hook that runs.
pub struct Hook(pub Running);

impl Hook {
    /// Starts a hook of the binary and gives it its input.
    pub fn starts(user: &Home, words: &str, input: &str) -> Self {
        Self::of(user.command(&format!("hook {words}")), input)
    }

    /// Starts a program as a hook and gives it its input.
    pub fn of(command: Command, input: &str) -> Self {
        let mut hook = Self::without_input(command);
        hook.0.0.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        hook
    }

    /// Starts a hook whose client keeps stdin open.
    pub fn without_input(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self(Running(command.spawn().unwrap()))
    }

    /// Waits until it has ended.
    pub fn ends(mut self) -> Done {
        let child = &mut self.0.0;
        let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let text = |stream: &mut dyn std::io::Read| std::io::read_to_string(stream).unwrap();
        let (stdout, stderr) = (text(&mut stdout), text(&mut stderr));
        let code = child.wait().unwrap().code().unwrap_or(-1);
        Done { code, stdout, stderr }
    }

    /// It has said nothing, and its client goes on.
    pub fn says_nothing(self) {
        let done = self.ends();
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "", ""));
    }

    /// The object that it has printed.
    pub fn says(self) -> Value {
        let done = self.ends();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
        serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"))
    }
}

/// The input of a hook of Claude Code in a conversation, with these members.
pub fn hook_input(conversation: &str, members: &Value) -> String {
    let mut input = json!({"session_id": conversation, "cwd": "/tmp", "transcript_path": "/tmp/t"});
    for (name, value) in members.as_object().unwrap() {
        input[name] = value.clone();
    }
    input.to_string()
}

/// A client before its start.
pub struct ClientBuilder<'a> {
    user: &'a Home,
    name: String,
    conversation: String,
    front: FrontBuilder,
    inbox: Option<Inbox>,
    codex: Option<CodexProgram>,
    prompt: Option<Prompt>,
    has_hooks: bool,
    background_after: Duration,
}

/// A running client, with the session of its agent.
pub struct Client<'a> {
    user: &'a Home,
    pub name: String,
    conversation: String,
    pub front: Front,
    turns: Receiver<Turn>,
    begins: Sender<Turn>,
    inbox: Option<Inbox>,
    /// What it does with messages of other sessions.
    pub rule: Arc<Mutex<InboxRule>>,
    pub codex: Option<CodexProgram>,
    prompt: Option<Prompt>,
    /// Runs of `codex`, or lines of the prompt, that were looked at.
    lines_seen: usize,
    /// It has declared channels, and the client has opened the gate.
    takes_channel: bool,
    /// The hooks of its settings.
    hooks: Value,
    background_after: Duration,
    /// The calls that it has moved to the background.
    background: Vec<u64>,
}

impl<'a> ClientBuilder<'a> {
    /// Claude Code, of a version without an inbox.
    pub fn claude(user: &'a Home, name: &str) -> Self {
        let conversation = format!("{CONVERSATION}-{name}");
        let front = user.front().of_claude_code(&user.project(name), &conversation);
        Self {
            user,
            name: name.to_owned(),
            conversation,
            front,
            inbox: None,
            codex: None,
            prompt: None,
            has_hooks: false,
            // As Claude Code does.
            background_after: Duration::from_secs(120),
        }
    }

    /// Codex, whose command `codex` is a program of the test.
    pub fn codex(user: &'a Home, name: &str) -> Self {
        let codex = CodexProgram::of(user, "");
        let path = codex.path.to_str().unwrap().to_owned();
        Self {
            front: user.front().env("MCP_BROKER_CODEX", &path),
            codex: Some(codex),
            ..Self::claude(user, name)
        }
    }

    /// It gives its servers a socket for messages of other sessions.
    pub fn with_inbox(mut self) -> Self {
        let inbox = Inbox::of(self.user);
        self.front = self
            .front
            .env("CLAUDE_CODE_MESSAGING_SOCKET", inbox.path.to_str().unwrap())
            .env("CLAUDE_CODE_MESSAGING_TOKEN", TOKEN);
        self.inbox = Some(inbox);
        self
    }

    /// It was started with a channel, and the front as well.
    pub fn with_channel(mut self) -> Self {
        self.front = self.front.env("MCP_BROKER_WAKE", "channel");
        self
    }

    /// The front may type into its terminal.
    pub fn with_prompt(mut self, prompt: Prompt) -> Self {
        self.front = prompt.tells(self.front);
        self.prompt = Some(prompt);
        self
    }

    /// The hooks that `setup` installs are in its settings.
    pub fn with_hooks(mut self) -> Self {
        self.has_hooks = true;
        self
    }

    /// It moves a call to the background after this time.
    pub fn with_background_after(mut self, after: Duration) -> Self {
        self.background_after = after;
        self
    }

    /// Starts the client and registers its session, which may be woken again at once.
    pub fn starts(self) -> Client<'a> {
        let Self {
            user,
            name,
            conversation,
            front,
            inbox,
            codex,
            prompt,
            has_hooks,
            background_after,
        } = self;
        let (begins, turns) = channel();
        let rule = Arc::new(Mutex::new(InboxRule::Takes));
        if let Some(inbox) = &inbox {
            inbox.serves(Arc::clone(&rule), INBOX_SILENCE, begins.clone());
        }
        let handshake = if codex.is_some() {
            "codex-0.169.0"
        } else {
            "claude-code-2.1.330"
        };
        let mut front = front.start();
        let frames = recorded(handshake);
        for frame in &frames {
            front.sends(frame);
        }
        // Claude Code refuses the notifications of a server that has answered its probe for the modern era.
        let has_probed = codex.is_none() && front.answer("server-discover-probe-1")["error"]["code"] == -32601;
        let capabilities = front.answer(0)["result"]["capabilities"].clone();
        front.counts_from(100);
        let mut client = Client {
            user,
            name,
            conversation,
            front,
            turns,
            begins,
            inbox,
            rule,
            codex,
            prompt,
            lines_seen: 0,
            takes_channel: has_probed && capabilities["experimental"]["claude/channel"].is_object(),
            hooks: Value::Null,
            background_after,
            background: Vec::new(),
        };
        if has_hooks {
            client.installs_hooks();
        }
        let registration = json!({"name": client.name, "wake": {"min_interval_seconds": 0}});
        client.calls("register_session", &registration);
        client.runs_hooks("SessionStart", &json!({"source": "startup"}));
        client
    }
}

impl Client<'_> {
    fn installs_hooks(&mut self) {
        self.user.does("setup claude --hooks");
        let settings = fs::read(self.user.path.join(".claude/settings.json")).unwrap();
        self.hooks = serde_json::from_slice::<Value>(&settings).unwrap()["hooks"].take();
    }

    /// Runs the hooks of an event. Those with `asyncRewake` run in the background, and begin a turn when they end with exit
    /// code 2. Returns what the others have printed.
    fn runs_hooks(&self, event: &str, members: &Value) -> Vec<Value> {
        let mut input = members.clone();
        input["hook_event_name"] = event.into();
        let input = hook_input(&self.conversation, &input);
        let mut printed = Vec::new();
        let groups = self.hooks[event].as_array().into_iter().flatten();
        for hook in groups.flat_map(|group| group["hooks"].as_array().unwrap()) {
            assert_eq!(hook["type"], "command", "{hook}");
            let mut command = self.user.command("");
            let mut program = Command::new(hook["command"].as_str().unwrap());
            program.env_clear();
            program.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            program.args(
                hook["args"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|word| word.as_str().unwrap()),
            );
            command = program;
            let running = Hook::of(command, &input);
            if hook["asyncRewake"] == true {
                let begins = self.begins.clone();
                thread::spawn(move || {
                    let done = running.ends();
                    if done.code == 2 {
                        let text = done.stderr.trim_end().to_owned();
                        let _ = begins.send(Turn { by: "hook", text });
                    }
                });
                continue;
            }
            let done = running.ends();
            assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{event}: {done:?}");
            if !done.stdout.is_empty() {
                printed.push(serde_json::from_str(&done.stdout).unwrap());
            }
        }
        printed
    }

    /// The object of a tool call that succeeds.
    pub fn calls(&mut self, tool: &str, arguments: &Value) -> Value {
        let id = self.begins_call(tool, arguments);
        let answer = self.front.answer(id);
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
        answer["result"]["structuredContent"].clone()
    }

    fn begins_call(&mut self, tool: &str, arguments: &Value) -> u64 {
        let mut params = json!({"name": tool, "arguments": arguments});
        if self.codex.is_some() {
            params["_meta"] = json!({"threadId": self.conversation});
        }
        self.front.asks("tools/call", &params)
    }

    /// The model calls a tool that does not answer soon: the client moves the call to the background, and the turn ends.
    pub fn calls_in_the_background(&mut self, tool: &str, arguments: &Value) {
        let id = self.begins_call(tool, arguments);
        let until = Instant::now() + self.background_after;
        eventually("the call is moved to the background", || {
            (Instant::now() >= until).then_some(())
        });
        assert_eq!(self.front.takes(|frame| frame["id"] == id), None, "{tool} has answered");
        self.background.push(id);
    }

    /// Waits until a turn begins.
    pub fn begins_turn(&mut self) -> Turn {
        let what = format!("a turn of {} begins", self.name);
        eventually(&what, || self.turn_that_began())
    }

    /// The turn that has begun, if there is one.
    pub fn turn_that_began(&mut self) -> Option<Turn> {
        if let Ok(turn) = self.turns.try_recv() {
            return Some(turn);
        }
        if let Some(told) = self
            .front
            .takes(|frame| frame["method"] == "notifications/claude/channel")
        {
            assert!(self.takes_channel, "no channel was opened: {told}");
            let text = told["params"]["content"].as_str().unwrap().to_owned();
            return Some(Turn { by: "channel", text });
        }
        let background = std::mem::take(&mut self.background);
        let ended = self.front.takes(|frame| background.iter().any(|id| frame["id"] == *id));
        self.background = background;
        if let Some(answer) = ended {
            self.background.retain(|id| answer["id"] != *id);
            let text = answer["result"]["content"][0]["text"].as_str().unwrap().to_owned();
            return Some(Turn { by: "call", text });
        }
        self.turn_of_a_line()
    }

    /// The turn of a run of `codex queue`, or of a line in the prompt.
    fn turn_of_a_line(&mut self) -> Option<Turn> {
        let lines = match (&self.codex, &self.prompt) {
            (Some(codex), _) => codex.was_given(),
            (None, Some(prompt)) => prompt.typed(),
            (None, None) => return None,
        };
        let run = lines.into_iter().nth(self.lines_seen)?;
        self.lines_seen += 1;
        if self.codex.is_none() {
            return Some(Turn { by: "tmux", text: run });
        }
        let before = format!("queue --thread {} --message ", self.conversation);
        let text = run.strip_prefix(&before).unwrap_or_else(|| panic!("{run}")).to_owned();
        Some(Turn { by: "queue", text })
    }

    /// Asserts that no turn has begun.
    pub fn rests(&mut self) {
        assert_eq!(self.turn_that_began(), None, "{}", self.name);
    }

    /// The model reads its inbox: the messages, which are acknowledged.
    pub fn reads(&mut self) -> Vec<Value> {
        let read = self.calls("receive_messages", &json!({"acknowledge": "immediate", "limit": 1000}));
        read["messages"].as_array().unwrap().clone()
    }

    /// The turn ends. Returns what its hooks say, with which the client goes on.
    pub fn ends_turn(&mut self) -> Vec<Value> {
        self.runs_hooks("Stop", &json!({"stop_hook_active": false}))
    }

    /// The vendor switches the inbox off: its socket is gone.
    pub fn loses_its_inbox(&mut self) {
        fs::remove_file(&self.inbox.as_ref().unwrap().path).unwrap();
    }
}

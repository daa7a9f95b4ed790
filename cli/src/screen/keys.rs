//! The keys of the terminal.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key of the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Ctrl(char),
    Alt(char),
    Up,
    Down,
    Left,
    Right,
    WordLeft,
    WordRight,
    Home,
    End,
    PageUp,
    PageDown,
    Enter,
    Escape,
    Backspace,
    Delete,
    Tab,
    BackTab,
    Paste(String),
}

impl Key {
    /// The key of an event, if it is one that programs know.
    pub fn of(event: &Event) -> Option<Self> {
        let KeyEvent { code, modifiers, .. } = match event {
            Event::Paste(text) => return Some(Self::Paste(text.clone())),
            Event::Key(key) if matches!(key.kind, KeyEventKind::Press | KeyEventKind::Repeat) => key,
            _ => return None,
        };
        let has_ctrl = modifiers.contains(KeyModifiers::CONTROL);
        let has_alt = modifiers.contains(KeyModifiers::ALT);
        Some(match code {
            KeyCode::Up => Self::Up,
            KeyCode::Down => Self::Down,
            KeyCode::Left if has_ctrl || has_alt => Self::WordLeft,
            KeyCode::Right if has_ctrl || has_alt => Self::WordRight,
            KeyCode::Left => Self::Left,
            KeyCode::Right => Self::Right,
            KeyCode::Home => Self::Home,
            KeyCode::End => Self::End,
            KeyCode::PageUp => Self::PageUp,
            KeyCode::PageDown => Self::PageDown,
            KeyCode::Enter => Self::Enter,
            KeyCode::Esc => Self::Escape,
            KeyCode::Backspace => Self::Backspace,
            KeyCode::Delete => Self::Delete,
            KeyCode::Tab => Self::Tab,
            KeyCode::BackTab => Self::BackTab,
            KeyCode::Char(c) if has_ctrl => Self::Ctrl(c.to_ascii_lowercase()),
            KeyCode::Char(c) if has_alt => Self::Alt(*c),
            KeyCode::Char(c) => Self::Char(*c),
            _ => return None,
        })
    }
}

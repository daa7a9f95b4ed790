//! Screens that are drawn into memory and compared with files.

use std::path::Path;

use ratatui::backend::TestBackend;
use ratatui::{Frame, Terminal};
use test_client::golden;
use unicode_width::UnicodeWidthStr;

/// What is drawn on a screen of this size.
pub fn drawn(width: u16, height: u16, draw: impl FnOnce(&mut Frame<'_>)) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(draw).unwrap();
    terminal
}

/// The lines of a screen.
pub fn text(terminal: &Terminal<TestBackend>) -> String {
    let buffer = terminal.backend().buffer();
    let area = buffer.area;
    let mut text = String::new();
    for y in 0..area.height {
        let (mut line, mut x) = (String::new(), 0);
        while x < area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character hides the cell behind it.
            x += UnicodeWidthStr::width(symbol).max(1) as u16;
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Compares a screen with a file of a program, such as `top`.
pub fn assert_golden(program: &str, name: &str, terminal: &Terminal<TestBackend>) {
    let area = terminal.backend().buffer().area;
    let file = format!("src/{program}/golden/{name}-{}x{}.txt", area.width, area.height);
    golden::assert_golden(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file), &text(terminal));
}

//! Includes the parser of the tables of backends.
#![allow(dead_code)]

#[path = "../../common/src/config/backend_tools.rs"]
mod backend_tools;
#[path = "../../common/src/config/backends.rs"]
mod backends;
#[path = "../../common/src/config/file_pattern.rs"]
mod file_pattern;
#[path = "../../common/src/config/guess.rs"]
mod guess;
#[path = "../../common/src/config/kinds.rs"]
mod kinds;
#[path = "../../common/src/config/one_line.rs"]
mod one_line;
#[path = "../../common/src/config/server_url.rs"]
mod server_url;
#[path = "../../common/src/config/span.rs"]
mod span;

pub use backends::check_backends;
pub use file_pattern::FilePattern;
pub use one_line::one_line;
pub use server_url::parse_url;

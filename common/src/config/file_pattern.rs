//! Patterns of the files whose changes start a backend again.

use globset::{GlobBuilder, GlobMatcher};

/// Characters of one pattern.
const LEN_MAX: usize = 512;
/// Characters that make a part of a path a pattern.
const SPECIAL: [char; 5] = ['*', '?', '[', '{', '\\'];

/// A pattern: a file, a folder with all that is below it, or a folder with what matches below it.
#[derive(Clone, Debug)]
pub struct FilePattern {
    /// The file or folder that it begins with, as it is written. Empty for the folder that it is relative to.
    pub base: String,
    /// Which paths below `base` match; `None` for all.
    pub below: Option<GlobMatcher>,
}

impl FilePattern {
    /// Parses a pattern: `pyproject.toml`, `src`, `src/**/*.{py,json}`.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > LEN_MAX {
            return Err(format!("a pattern has 1 to {LEN_MAX} characters"));
        }
        let Some(special) = text.find(SPECIAL) else {
            let base = text.to_owned();
            return Ok(Self { base, below: None });
        };
        let slash = text[..special].rfind('/');
        let (base, below) = match slash {
            // The root of all files.
            Some(0) => ("/", &text[1..]),
            Some(at) => (&text[..at], &text[at + 1..]),
            None => ("", text),
        };
        let glob = GlobBuilder::new(below).literal_separator(true).build();
        Ok(Self {
            base: base.to_owned(),
            below: Some(
                glob.map_err(|error| format!("{text}: {}", error.kind()))?
                    .compile_matcher(),
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_begins_with_the_folders_that_it_names() {
        for (text, base, matched, unmatched) in [
            ("src/**/*.py", "src", "a/b.py", "a/b.pyc"),
            ("*.py", "", "a.py", "a/b.py"),
            ("/a/b/x?.{js,ts}", "/a/b", "x1.ts", "x12.ts"),
            ("/*.py", "/", "a.py", "a/b.py"),
            ("~/a/[ab].c", "~/a", "b.c", "c.c"),
        ] {
            let pattern = FilePattern::parse(text).unwrap();
            assert_eq!(pattern.base, base, "{text}");
            let below = pattern.below.unwrap();
            assert!(below.is_match(matched) && !below.is_match(unmatched), "{text}");
        }
        let whole = FilePattern::parse("src/main.py").unwrap();
        assert!(whole.base == "src/main.py" && whole.below.is_none());
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "1 to 512"),
            ("src/[a", "unclosed character class"),
            ("{a", "unclosed alternate group"),
        ] {
            let found = FilePattern::parse(text).unwrap_err();
            assert!(found.contains(reason), "{text}: {found}");
        }
    }
}

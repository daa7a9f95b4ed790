//! The environment of a backend: what it may see of the broker's, and what its configuration names.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Variables that every program needs and that hold no secrets.
const PASSED: [&str; 10] = [
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_RUNTIME_DIR",
];
/// What the names of further passed variables begin with.
const PASSED_PREFIX: &str = "LC_";
/// What the names of the broker's own variables begin with. They are never passed.
const OWN_PREFIX: &str = "MCP_BROKER_";
/// Bytes of a file that `${file:PATH}` names.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Reads a variable of the broker's environment.
pub type ReadVariable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The environment of a program: the variables that every program gets, those that `pass` names, and `own` with its
/// references replaced. Credentials are cut out of passed addresses of proxies.
///
/// # Errors
/// A reference cannot be replaced: which one, and why.
pub fn environment(
    pass: &[String],
    own: &BTreeMap<String, String>,
    broker: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<String, String>, String> {
    let broker: BTreeMap<String, String> = broker
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let is_passed = |name: &str| {
        let is_wanted =
            PASSED.contains(&name) || name.starts_with(PASSED_PREFIX) || pass.iter().any(|pass| pass == name);
        is_wanted && !name.starts_with(OWN_PREFIX)
    };
    let mut environment: BTreeMap<String, String> = broker
        .iter()
        .filter(|(name, _)| is_passed(name))
        .map(|(name, value)| (name.clone(), without_credentials(name, value)))
        .collect();
    let read = |name: &str| broker.get(name).cloned();
    for (name, value) in own {
        let value = expand(value, &read).map_err(|reason| format!("env.{name}: {reason}"))?;
        environment.insert(name.clone(), value);
    }
    Ok(environment)
}

/// The address of a proxy without user and password; other values as they are.
fn without_credentials(name: &str, value: &str) -> String {
    if !name.to_ascii_lowercase().ends_with("_proxy") {
        return value.to_owned();
    }
    let (scheme, rest) = value.split_once("://").unwrap_or(("", value));
    let (authority, path) = rest
        .split_once('/')
        .map_or((rest, None), |(left, right)| (left, Some(right)));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    match scheme {
        "" => format!("{host}{path}"),
        scheme => format!("{scheme}://{host}{path}"),
    }
}

/// Replaces the references in a value: `${VAR}`, `${VAR:-default}`, `${env:VAR}` and `${file:PATH}`. `$` without a bracket
/// stays as it is.
///
/// # Errors
/// The variable is not set and the reference has no default, the file cannot be read, or the bracket is not closed.
pub fn expand(value: &str, read: ReadVariable<'_>) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let end = inside
            .find('}')
            .ok_or_else(|| "a reference \"${\" has no closing bracket".to_owned())?;
        out.push_str(&referenced(&inside[..end], read)?);
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// A text in which [`expand`] replaces nothing.
pub fn literal(text: &str) -> String {
    text.replace("${", "${:-$}{")
}

fn referenced(reference: &str, read: ReadVariable<'_>) -> Result<String, String> {
    if let Some(path) = reference.strip_prefix("file:") {
        return read_file(Path::new(path));
    }
    let reference = reference.strip_prefix("env:").unwrap_or(reference);
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    match (
        read(name).filter(|value| !value.is_empty() || default.is_none()),
        default,
    ) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!("the variable {name} is not set in the broker's environment")),
    }
}

/// The content of a file without the line break at its end.
fn read_file(path: &Path) -> Result<String, String> {
    let failed = |reason: &dyn std::fmt::Display| format!("the file {} cannot be used: {reason}", path.display());
    let len = std::fs::metadata(path).map_err(|error| failed(&error))?.len();
    if len > FILE_BYTES_MAX {
        return Err(failed(&format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The program that a command names: itself if it is a path, otherwise the first one of that name in `search`.
///
/// # Errors
/// There is none, or it cannot be run.
pub fn find_program(command: &str, search: Option<&str>, folder: Option<&Path>) -> Result<PathBuf, String> {
    if command.is_empty() {
        return Err("no command is named".to_owned());
    }
    if command.contains('/') {
        let path = folder.map_or_else(|| PathBuf::from(command), |folder| folder.join(command));
        return match std::fs::metadata(&path) {
            Ok(found) if is_program(&found) => Ok(path),
            Ok(_) => Err(format!("{} is not executable", path.display())),
            Err(error) => Err(format!("{} cannot be run: {error}", path.display())),
        };
    }
    let search = search.unwrap_or_default();
    std::env::split_paths(search)
        .map(|folder| folder.join(command))
        .find(|path| std::fs::metadata(path).is_ok_and(|found| is_program(&found)))
        .ok_or_else(|| format!("no program \"{command}\" in PATH"))
}

fn is_program(file: &std::fs::Metadata) -> bool {
    file.is_file() && file.permissions().mode() & 0o111 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker() -> Vec<(OsString, OsString)> {
        [
            ("PATH", "/bin"),
            ("HOME", "/home/a"),
            ("LC_ALL", "C"),
            ("SECRET", "s"),
            ("MCP_BROKER_ADMIN_KEY", "k"),
            ("HTTPS_PROXY", "http://me:pw@proxy:3128/x"),
            ("EMPTY", ""),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into()
    }

    #[test]
    fn a_program_sees_what_it_needs_and_what_is_named() {
        let own = BTreeMap::from([("TOKEN".to_owned(), "x${SECRET}".to_owned())]);
        let pass = ["HTTPS_PROXY", "MCP_BROKER_ADMIN_KEY"].map(str::to_owned);
        let seen = environment(&pass, &own, broker()).unwrap();
        let expected = [
            ("HOME", "/home/a"),
            ("HTTPS_PROXY", "http://proxy:3128/x"),
            ("LC_ALL", "C"),
            ("PATH", "/bin"),
            ("TOKEN", "xs"),
        ];
        let expected: BTreeMap<String, String> =
            expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(seen, expected);
    }

    #[test]
    fn references_are_replaced() {
        let file = std::env::temp_dir().join(format!("mcp-broker-expand-{}", std::process::id()));
        std::fs::write(&file, "from file\n").unwrap();
        let named = format!("${{file:{}}}", file.display());
        let read = |name: &str| match name {
            "A" => Some("a".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        for (value, expected) in [
            ("plain $A", "plain $A"),
            ("${A}-${env:A}", "a-a"),
            ("${B:-b}${EMPTY:-e}", "be"),
            ("${EMPTY}", ""),
            (&named, "from file"),
        ] {
            assert_eq!(expand(value, &read).as_deref(), Ok(expected), "{value}");
        }
        for text in ["${A}", "a ${B ${", "$${A}", ""] {
            assert_eq!(expand(&literal(text), &read).as_deref(), Ok(text));
        }
        std::fs::remove_file(&file).unwrap();
        for wrong in ["${B}", "${A", &named] {
            assert!(expand(wrong, &read).is_err(), "{wrong}");
        }
        let reason = environment(&[], &BTreeMap::from([("T".to_owned(), "${B}".to_owned())]), broker());
        assert_eq!(
            reason.unwrap_err(),
            "env.T: the variable B is not set in the broker's environment"
        );
    }

    #[test]
    fn a_program_is_found_in_the_path_or_refused_with_a_reason() {
        let found = find_program("sh", Some("/nonexistent:/bin:/usr/bin"), None).unwrap();
        assert!(found.ends_with("sh"));
        for (command, reason) in [
            ("nope", "no program \"nope\" in PATH"),
            ("", "no command is named"),
            ("/etc/passwd", "/etc/passwd is not executable"),
        ] {
            assert_eq!(find_program(command, Some("/bin"), None).unwrap_err(), reason);
        }
        assert!(find_program("./nope", None, Some(Path::new("/tmp"))).is_err());
    }
}

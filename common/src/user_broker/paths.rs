//! Where the files of a local broker are.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use rustix::process::geteuid;

use super::{error::LocalError, instance::Instance, lock::FileLock, publish::SOCKET_PATH_LEN_MAX, vetting};

const FOLDER: &str = "mcp-broker";

/// Where the files of one local broker are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalPaths {
    pub instance: Instance,
    /// The runtime folder, mode 0700, which holds the socket, the locks and `broker.json`.
    pub folder: PathBuf,
    pub socket: PathBuf,
    /// Locked by the process that starts a broker, until the broker is ready.
    pub start_lock: PathBuf,
    /// Locked by the broker as long as it lives. The lock says that it lives, not its process id.
    pub life_lock: PathBuf,
    /// What the broker says of itself, for people and for programs that do not connect to it.
    pub info: PathBuf,
    /// The folder of the disk storage.
    pub data: PathBuf,
    /// The log of the broker. Older parts of it have a number behind the name.
    pub log: PathBuf,
    /// What a client of the FIFO transport writes to.
    pub fifo_in: PathBuf,
    /// What a client of the FIFO transport reads from.
    pub fifo_out: PathBuf,
}

impl LocalPaths {
    /// The files of an instance. Makes its runtime folder, and checks that other users cannot have touched it.
    ///
    /// # Errors
    /// The runtime folder cannot be made, or belongs to another user, or others may write to it.
    pub fn of(instance: &Instance) -> Result<Self, LocalError> {
        let paths = Self::named(instance, &variable_of_user)?.where_it_lives();
        vetting::make_private(&paths.folder)?;
        Ok(paths)
    }

    /// The files of an instance like [`Self::of`], for a command that only looks: a missing folder stays missing.
    ///
    /// # Errors
    /// Those of [`Self::of`].
    pub fn look_up(instance: &Instance) -> Result<Self, LocalError> {
        let paths = Self::named(instance, &variable_of_user)?.where_it_lives();
        if paths.folder.symlink_metadata().is_ok() {
            vetting::vet(&paths.folder)?;
        }
        Ok(paths)
    }

    /// The files of an instance in an environment, without a look at the disk.
    fn named(instance: &Instance, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, LocalError> {
        let below = |base: PathBuf| below(base, instance);
        let wanted = below(runtime_base(variable));
        let fits = wanted.join("broker.sock").as_os_str().len() <= SOCKET_PATH_LEN_MAX;
        let folder = if fits { wanted } else { below(short_base()) };
        let (state, logs) = state_bases(variable)?;
        Ok(Self::at(instance, folder, (below(state), below(logs))))
    }

    /// The files of an instance with these folders: the runtime folder, that of the data, and that of the log.
    fn at(instance: &Instance, folder: PathBuf, (state, logs): (PathBuf, PathBuf)) -> Self {
        let in_folder = |name: &str| folder.join(name);
        Self {
            instance: instance.clone(),
            socket: in_folder("broker.sock"),
            start_lock: in_folder("start.lock"),
            life_lock: in_folder("life.lock"),
            info: in_folder("broker.json"),
            fifo_in: in_folder("broker.fifo-in"),
            fifo_out: in_folder("broker.fifo-out"),
            data: state.join("data"),
            log: logs.join("broker.log"),
            folder,
        }
    }

    /// The files of an instance below another runtime folder of this user; None where no state folder is named.
    pub(super) fn in_base(instance: &Instance, base: &Path) -> Option<Self> {
        let (state, logs) = state_bases(&variable_of_user).ok()?;
        let folders = (below(state, instance), below(logs, instance));
        Some(Self::at(instance, below(base.to_owned(), instance), folders))
    }

    /// The runtime folders in which brokers of this user may be.
    pub(super) fn runtime_bases() -> Vec<PathBuf> {
        let mut bases = vec![runtime_base(&variable_of_user), short_base()];
        let of_login = login_folder(Path::new("/run/user")).map(|base| base.join(FOLDER));
        let of_default = Self::named(&Instance::default(), &variable_of_user).ok();
        bases.extend(
            of_login
                .into_iter()
                .chain(of_default.and_then(|paths| paths.named_folder())),
        );
        bases
    }

    /// The same files in the runtime folder where the broker lives, if that is another one: a client has started it whose
    /// environment leads there. Two brokers cannot share the data, and their agents would not see each other.
    fn where_it_lives(self) -> Self {
        let is_held = |lock: &Path| FileLock::is_held(lock).unwrap_or(false);
        let elsewhere = self.named_folder().filter(|folder| *folder != self.folder);
        let Some(folder) = elsewhere.filter(|_| self.instance.dev_name().is_none()) else {
            return self;
        };
        let (state, logs) = (self.state_folder().to_owned(), self.log.parent().map(Path::to_owned));
        let other = Self::at(&self.instance, folder, (state, logs.unwrap_or_default()));
        let lives_there = vetting::vet(&other.folder).is_ok() && is_held(&other.life_lock);
        if lives_there && !is_held(&self.life_lock) {
            other
        } else {
            self
        }
    }

    /// The runtime folder that the last broker with this data has named.
    fn named_folder(&self) -> Option<PathBuf> {
        let text = fs::read_to_string(self.pointer()).ok()?;
        absolute(Some(text.trim_end().into()))
    }

    /// Next to the data, the file in which a broker names its runtime folder. Clients that are started without the variable
    /// that leads there find the broker by it.
    pub fn pointer(&self) -> PathBuf {
        self.state_folder().join("runtime")
    }

    /// The folder of the brokers for development. It may be missing.
    ///
    /// # Errors
    /// Neither `XDG_STATE_HOME` nor `HOME` is set.
    pub fn dev_folder() -> Result<PathBuf, LocalError> {
        let any = Instance::dev("default").map_err(LocalError)?;
        let paths = Self::named(&any, &variable_of_user)?;
        Ok(paths.folder.parent().map(Path::to_owned).unwrap_or_default())
    }

    /// The prefix of both FIFOs, for the setting `local_fifo`.
    pub fn fifo_prefix(&self) -> PathBuf {
        self.folder.join("broker.fifo")
    }

    /// The folder of the log and of the data.
    pub fn state_folder(&self) -> &Path {
        self.data.parent().unwrap_or(&self.data)
    }
}

/// The folder of an instance below that of all.
fn below(base: PathBuf, instance: &Instance) -> PathBuf {
    if instance.is_default() {
        base
    } else {
        base.join(instance.as_str())
    }
}

/// An absolute path from a variable. The rules of XDG ignore others.
fn absolute(value: Option<OsString>) -> Option<PathBuf> {
    value
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && !path.as_os_str().as_bytes().contains(&0))
}

/// A variable of the environment. Many clients start a server with a few variables alone, and `XDG_RUNTIME_DIR` is seldom
/// one of them: the folder that a login makes replaces it, so that all clients of a user find one broker.
fn variable_of_user(name: &str) -> Option<OsString> {
    let value = env::var_os(name);
    if name != "XDG_RUNTIME_DIR" || absolute(value.clone()).is_some() {
        return value;
    }
    login_folder(Path::new("/run/user")).map(PathBuf::into_os_string)
}

/// The folder of this user among the runtime folders of all users, if a login has made it.
fn login_folder(all: &Path) -> Option<PathBuf> {
    let uid = geteuid().as_raw();
    let folder = all.join(uid.to_string());
    let metadata = folder.symlink_metadata().ok()?;
    (metadata.is_dir() && metadata.uid() == uid).then_some(folder)
}

/// The configuration file of the broker of a user: `mcp-broker/broker.toml` in `XDG_CONFIG_HOME`, or in `.config`.
pub fn config_file_of_user() -> Option<PathBuf> {
    let base = match absolute(env::var_os("XDG_CONFIG_HOME")) {
        Some(base) => base,
        None => absolute(env::var_os("HOME"))?.join(".config"),
    };
    Some(base.join(FOLDER).join("broker.toml"))
}

fn runtime_base(variable: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    if cfg!(target_os = "macos") {
        return env::temp_dir().join(FOLDER);
    }
    absolute(variable("XDG_RUNTIME_DIR")).map_or_else(short_base, |base| base.join(FOLDER))
}

/// The runtime folder where none is named, or where the path of a socket in it would be too long.
fn short_base() -> PathBuf {
    PathBuf::from(format!("/tmp/{FOLDER}-{}", geteuid().as_raw()))
}

/// The folders of data and of logs.
fn state_bases(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<(PathBuf, PathBuf), LocalError> {
    let home = || {
        let text = "neither XDG_STATE_HOME nor HOME names a folder for data and logs; set HOME";
        absolute(variable("HOME")).ok_or_else(|| LocalError(text.to_owned()))
    };
    if cfg!(target_os = "macos") {
        let library = home()?.join("Library");
        return Ok((
            library.join("Application Support").join(FOLDER),
            library.join("Logs").join(FOLDER),
        ));
    }
    let state = match absolute(variable("XDG_STATE_HOME")) {
        Some(state) => state,
        None => home()?.join(".local/state"),
    };
    Ok((state.join(FOLDER), state.join(FOLDER)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn named(instance: &str, variables: &[(&str, &str)]) -> LocalPaths {
        let find = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| OsString::from(value))
        };
        LocalPaths::named(&Instance::parse(instance).unwrap(), &find).unwrap()
    }

    #[test]
    fn files_are_where_xdg_says() {
        let variables = [
            ("XDG_RUNTIME_DIR", "/run/user/7"),
            ("XDG_STATE_HOME", "/s"),
            ("HOME", "/h"),
        ];
        let paths = named("default", &variables);
        assert_eq!(paths.socket, Path::new("/run/user/7/mcp-broker/broker.sock"));
        assert_eq!(paths.data, Path::new("/s/mcp-broker/data"));
        assert_eq!(paths.log, Path::new("/s/mcp-broker/broker.log"));
        let paths = named("dev/x", &variables);
        assert_eq!(paths.life_lock, Path::new("/run/user/7/mcp-broker/dev/x/life.lock"));
        assert_eq!(paths.data, Path::new("/s/mcp-broker/dev/x/data"));
    }

    #[test]
    fn the_folder_of_a_login_counts_where_it_belongs_to_the_user() {
        let all = env::temp_dir().join(format!("mb-{}", uuid::Uuid::now_v7().simple()));
        assert_eq!(login_folder(&all), None);
        let own = all.join(geteuid().as_raw().to_string());
        fs::create_dir_all(&all).unwrap();
        std::os::unix::fs::symlink("/tmp", &own).unwrap();
        assert_eq!(login_folder(&all), None);
        fs::remove_file(&own).unwrap();
        fs::create_dir(&own).unwrap();
        assert_eq!(login_folder(&all), Some(own));
        fs::remove_dir_all(&all).unwrap();
    }

    #[test]
    fn a_missing_relative_or_long_runtime_folder_is_replaced_by_a_short_one() {
        let short = short_base();
        let long = format!("/{}", "x".repeat(SOCKET_PATH_LEN_MAX));
        for value in ["", "relative", &long] {
            let paths = named("default", &[("XDG_RUNTIME_DIR", value), ("HOME", "/h")]);
            assert_eq!(paths.folder, short, "{value}");
            assert_eq!(paths.data, Path::new("/h/.local/state/mcp-broker/data"));
        }
        let longest = format!("dev/{}", "n".repeat(32));
        assert!(named(&longest, &[("HOME", "/h")]).socket.as_os_str().len() <= SOCKET_PATH_LEN_MAX);
    }
}

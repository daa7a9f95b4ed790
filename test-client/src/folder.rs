//! Folders of tests.

use std::{
    env,
    fs::DirBuilder,
    io,
    ops::Deref,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
};

use rustix::process::Signal;

use crate::{
    process::{kill, with_variable},
    wait::eventually,
};

/// The folders of a user whose brokers are its own. Dropping it ends the processes that live in them, and removes them.
pub struct Home(Folder);

impl Home {
    pub fn new() -> io::Result<Self> {
        let folder = Folder::of_broker()?;
        for name in ["run", "state"] {
            DirBuilder::new().mode(0o700).create(folder.join(name))?;
        }
        Ok(Self(folder))
    }

    /// The variables by which a program lives in it.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("HOME", self.to_path_buf()),
            ("XDG_RUNTIME_DIR", self.join("run")),
            ("XDG_STATE_HOME", self.join("state")),
        ]
    }

    /// The processes that live in it.
    pub fn processes(&self) -> Vec<i32> {
        with_variable(&format!("HOME={}", self.display()))
    }
}

impl Deref for Home {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Until none is left: a front whose broker was killed starts another one.
        eventually("the processes of the home end", || {
            let pids = self.processes();
            for pid in &pids {
                kill(*pid, Signal::KILL);
            }
            pids.is_empty().then_some(())
        });
    }
}

/// A private folder with a short path: that of a socket in it has 103 bytes at most. Dropping it removes it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        Self::create("mcp-broker").unwrap()
    }

    /// A folder in which a local broker lives. `scripts/test` looks for what is left in such folders.
    pub fn of_broker() -> io::Result<Self> {
        Self::create("mb")
    }

    fn create(kind: &str) -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = env::temp_dir().join(format!("{kind}-{:x}-{number:x}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Of another folder of this process, or of a process that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                created => return created.map(|()| Self(path)),
            }
        }
    }

    /// The place of the local socket of a broker.
    pub fn socket(&self) -> PathBuf {
        self.0.join("s")
    }

    /// The names of its files.
    pub fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.0).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    /// The flag of a broker that stores here.
    pub fn data_dir(&self) -> String {
        format!("--data-dir={}", self.0.display())
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

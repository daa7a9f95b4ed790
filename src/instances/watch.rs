//! Watches the files that patterns name, and tells when the content of one has changed. Folders are watched, not files:
//! editors replace files, and tools replace folders.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    hash::{DefaultHasher, Hasher},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use actors::locked::Locked;

use globset::GlobMatcher;
use ignore::{DirEntry, WalkBuilder};
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{CreateKind, ModifyKind, RemoveKind},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

/// How long files must have been left alone before they are read: editors write in several steps, tools many files.
const QUIET: Duration = Duration::from_millis(200);
/// The longest time from the first change until they are read.
const QUIET_MAX: Duration = Duration::from_millis(1_600);
/// How far the times of files may be behind the clock: systems take the time of their last tick.
const TICK: Duration = Duration::from_millis(20);
/// Folders and files of one watch.
const FOLDERS_MAX: usize = 5_000;
const FILES_MAX: usize = 10_000;
/// Changed files that the log names each time, and files that are ignored, which it names once.
const LOGGED_MAX: usize = 10;
const IGNORED_MAX: usize = 1_000;
/// Bytes of a file whose content is compared; of a longer one the length and the time of its last change are.
const CONTENT_LEN_MAX: u64 = 1024 * 1024;
/// Folders that hold no sources. A pattern that begins below one of them finds its files.
const LEFT_OUT: [&str; 11] = [
    ".git",
    ".hg",
    ".hypothesis",
    ".idea",
    ".mypy_cache",
    ".pytest_cache",
    ".svn",
    ".tox",
    ".venv",
    "__pycache__",
    "node_modules",
];

/// Watches files until it is dropped.
pub struct Watch {
    _task: AbortOnDropHandle<()>,
}

impl Watch {
    /// Watches files on this thread's arbiter. `changed` is called once for changes in quick succession, also for those that
    /// come while the files are looked at for the first time. `failed` takes what cannot be watched.
    pub fn start(patterns: FilePatterns, changed: impl Fn() + 'static, failed: impl Fn(&str) + 'static) -> Self {
        let begun = SystemTime::now() - TICK;
        let noticed = Arc::<Notify>::default();
        let patterns = Arc::new(patterns);
        let (notice, noticing) = (Arc::clone(&noticed), Arc::clone(&patterns));
        let mut ignored = HashSet::new();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // A lost event may have been a change.
            if event.as_ref().map_or(true, |event| noticing.may_match(event)) {
                notice.notify_one();
            } else if let Ok(event) = event {
                log_ignored(&event, &mut ignored);
            }
        });
        let task = async move {
            match watcher {
                Ok(watcher) => run(Files::new(watcher, patterns), begun, &noticed, changed, failed).await,
                Err(error) => failed(&format!("its files cannot be watched: {error}")),
            }
        };
        Self {
            _task: AbortOnDropHandle::new(actix_rt::spawn(task)),
        }
    }
}

async fn run(files: Files, begun: SystemTime, noticed: &Notify, changed: impl Fn(), failed: impl Fn(&str)) {
    let (mut files, mut begun) = (files, Some(begun));
    let mut told = BTreeSet::new();
    loop {
        let since = begun.take();
        let looking = tokio::task::spawn_blocking(move || {
            let found = files.look(since);
            (files, found)
        });
        let Ok((looked, found)) = looking.await else {
            return;
        };
        files = looked;
        found.failures.difference(&told).for_each(|reason| failed(reason));
        told = found.failures;
        for (change, path) in &found.changes {
            let path = path.display();
            tracing::info!("File {change}: {path}");
        }
        if found.has_changed {
            changed();
        }
        noticed.notified().await;
        let first = Instant::now();
        while first.elapsed() < QUIET_MAX && timeout(QUIET, noticed.notified()).await.is_ok() {}
    }
}

/// Logs a file that no pattern names, once: the log itself may be such a file.
fn log_ignored(event: &Event, ignored: &mut HashSet<PathBuf>) {
    let change = match event.kind {
        EventKind::Create(_) => "added",
        EventKind::Modify(_) => "modified",
        EventKind::Remove(_) => "deleted",
        EventKind::Any | EventKind::Access(_) | EventKind::Other => return,
    };
    for path in &event.paths {
        if ignored.len() < IGNORED_MAX && ignored.insert(path.clone()) {
            let path = path.display();
            tracing::debug!("Ignored {change}: {path}");
        }
    }
}

/// The files that are watched.
pub struct FilePatterns {
    /// What matches below each file or folder; nothing means everything in it.
    below: BTreeMap<PathBuf, Vec<Option<GlobMatcher>>>,
    /// Where the files are that are links.
    linked: Locked<HashSet<PathBuf>>,
    /// A file that was written has changed, even if it has the same content.
    counts_writes: bool,
}

impl FilePatterns {
    /// Files and folders, with what matches below each; nothing means everything in it.
    pub fn new(patterns: impl IntoIterator<Item = (PathBuf, Option<GlobMatcher>)>) -> Self {
        let mut below = BTreeMap::<_, Vec<_>>::new();
        for (base, glob) in patterns {
            let base = std::path::absolute(&base).unwrap_or(base);
            below.entry(base).or_default().push(glob);
        }
        Self {
            below,
            linked: Locked::default(),
            counts_writes: false,
        }
    }

    /// Sets whether each file counts as changed when it was written, even if it has the same content.
    #[must_use]
    pub fn with_writes(self, counts_writes: bool) -> Self {
        Self { counts_writes, ..self }
    }

    /// One file.
    pub fn file(path: &Path) -> Self {
        Self::new([(path.to_owned(), None)])
    }

    fn matches(&self, path: &Path) -> bool {
        !is_temporary(path)
            && self.below.iter().any(|(base, globs)| {
                let matched = |rest: &Path| {
                    let mut globs = globs.iter();
                    globs.any(|glob| glob.as_ref().is_none_or(|glob| glob.is_match(rest)))
                };
                path.strip_prefix(base).is_ok_and(matched)
            })
    }

    /// Whether an event may be a change of a file that is watched, or of the folders around it.
    fn may_match(&self, event: &Event) -> bool {
        match event.kind {
            EventKind::Access(_) => false,
            EventKind::Any | EventKind::Other => true,
            EventKind::Create(CreateKind::Folder)
            | EventKind::Remove(RemoveKind::Folder)
            | EventKind::Modify(ModifyKind::Name(_)) => true,
            _ if event.need_rescan() => true,
            _ => {
                let linked = self.linked.lock();
                let mut paths = event.paths.iter();
                paths.any(|path| self.matches(path) || linked.contains(path))
            }
        }
    }
}

/// Whether a name is that of a file that editors and systems make next to others.
fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with('~')
        || name.ends_with(".swp")
        || name.ends_with(".pyc")
        || name.starts_with(".#")
        || name == ".DS_Store"
}

/// What the files were when they were looked at last.
struct Files {
    watcher: RecommendedWatcher,
    patterns: Arc<FilePatterns>,
    seen: HashMap<PathBuf, Seen>,
}

#[derive(Clone, Copy)]
struct Seen {
    len: u64,
    modified: Option<SystemTime>,
    /// A digest of the content.
    digest: u64,
}

impl Seen {
    fn is_same(&self, now: &Self, counts_writes: bool) -> bool {
        self.digest == now.digest && (!counts_writes || self.modified == now.modified)
    }
}

/// What was found.
#[derive(Default)]
struct Found {
    has_changed: bool,
    /// The first of the files that have changed, with what has happened to each.
    changes: Vec<(&'static str, PathBuf)>,
    failures: BTreeSet<String>,
}

impl Files {
    fn new(watcher: RecommendedWatcher, patterns: Arc<FilePatterns>) -> Self {
        Self {
            watcher,
            patterns,
            seen: HashMap::new(),
        }
    }

    /// Watches the folders that are there now, and compares the files with what they were. With `begun` they are looked at
    /// for the first time, and those count as changed that were written since.
    fn look(&mut self, begun: Option<SystemTime>) -> Found {
        let mut found = Found::default();
        let (mut seen, mut folders) = (HashMap::new(), 0);
        let patterns = Arc::clone(&self.patterns);
        let mut linked = HashSet::new();
        for base in patterns.below.keys() {
            // The base itself may be replaced.
            self.watch(existing(base.parent().unwrap_or(base)), &mut found);
            if base.is_symlink()
                && let Ok(target) = base.canonicalize()
            {
                self.watch(existing(target.parent().unwrap_or(&target)), &mut found);
                linked.insert(target);
            }
            for entry in walk(base) {
                let Ok(entry) = entry else { continue };
                if entry.file_type().is_some_and(|kind| kind.is_dir()) {
                    folders += 1;
                    // A folder is watched before it is read, so that nothing is missed.
                    self.watch(entry.path(), &mut found);
                } else if patterns.matches(entry.path())
                    && let Some(file) = self.see(entry.path())
                {
                    seen.insert(entry.into_path(), file);
                }
                if folders > FOLDERS_MAX || seen.len() > FILES_MAX {
                    found.failures.insert(format!(
                        "watch: more than {FOLDERS_MAX} folders or {FILES_MAX} files below {}: name fewer",
                        base.display()
                    ));
                    break;
                }
            }
        }
        let change_of = |path: &PathBuf, file: &Seen| match (begun, self.seen.get(path)) {
            (Some(begun), _) => file.modified.is_some_and(|at| at >= begun).then_some("modified"),
            (None, None) => Some("added"),
            (None, Some(before)) => (!before.is_same(file, patterns.counts_writes)).then_some("modified"),
        };
        let present = seen
            .iter()
            .filter_map(|(path, file)| Some((change_of(path, file)?, path)));
        let gone = self.seen.keys().filter(|path| !seen.contains_key(*path));
        let mut changes = present.chain(gone.map(|path| ("deleted", path))).peekable();
        found.has_changed = changes.peek().is_some();
        let first = changes.take(LOGGED_MAX).map(|(change, path)| (change, path.clone()));
        found.changes = first.collect();
        self.seen = seen;
        *self.patterns.linked.lock() = linked;
        found
    }

    fn watch(&mut self, folder: &Path, found: &mut Found) {
        if let Err(error) = self.watcher.watch(folder, RecursiveMode::NonRecursive)
            && folder.exists()
        {
            // All folders fail for the same reason, which is logged once.
            found.failures.insert(format!("watch: {}", shown(&error)));
        }
    }

    /// A file as it is now. `None` if it is gone.
    fn see(&self, path: &Path) -> Option<Seen> {
        let about = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let (len, modified) = (about.len(), about.modified().ok());
        if let Some(known) = self.seen.get(path)
            && (known.len, known.modified) == (len, modified)
            && modified.is_some_and(is_settled)
        {
            return Some(*known);
        }
        let mut hasher = DefaultHasher::new();
        if len <= CONTENT_LEN_MAX {
            hasher.write(&fs::read(path).ok()?);
        } else {
            let since = modified.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
            hasher.write_u64(len);
            hasher.write_u128(since.unwrap_or_default().as_nanos());
        }
        let digest = hasher.finish();
        Some(Seen { len, modified, digest })
    }
}

/// Whether a file of this time cannot have been written again within the same tick of the clock of its system.
fn is_settled(modified: SystemTime) -> bool {
    modified.elapsed().is_ok_and(|age| age >= Duration::from_secs(3))
}

/// The files and folders from a base on, without those that hold no sources or that git ignores.
fn walk(base: &Path) -> ignore::Walk {
    let is_left_out = |entry: &DirEntry| entry.file_name().to_str().is_some_and(|name| LEFT_OUT.contains(&name));
    WalkBuilder::new(base)
        .standard_filters(false)
        .git_ignore(true)
        .parents(true)
        .filter_entry(move |entry| !is_left_out(entry))
        .build()
}

/// This folder, or the next one above it that exists.
fn existing(folder: &Path) -> &Path {
    let mut folders = folder.ancestors();
    folders.find(|folder| folder.is_dir()).unwrap_or(folder)
}

/// An error with advice where there is one.
fn shown(error: &notify::Error) -> String {
    match error.kind {
        notify::ErrorKind::MaxFilesWatch => {
            "the system watches as many folders as it may (fs.inotify.max_user_watches)".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;
    use common::config::FilePattern;

    /// A folder that is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let path = std::env::temp_dir().join(format!("watch-{}", uuid::Uuid::new_v4()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn writes(&self, name: &str, text: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn files(&self, patterns: &[&str]) -> Files {
            let watcher = notify::recommended_watcher(|_| {}).unwrap();
            Files::new(watcher, Arc::new(self.patterns(patterns)))
        }

        fn patterns(&self, patterns: &[&str]) -> FilePatterns {
            let parsed = patterns.iter().map(|text| FilePattern::parse(text).unwrap());
            FilePatterns::new(parsed.map(|pattern| (self.0.join(pattern.base), pattern.below)))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn seen(files: &Files, folder: &Folder) -> Vec<String> {
        let relative = |path: &PathBuf| path.strip_prefix(&folder.0).unwrap().display().to_string();
        let mut seen: Vec<String> = files.seen.keys().map(relative).collect();
        seen.sort();
        seen
    }

    #[test]
    fn the_files_that_match_are_seen_and_caches_are_not() {
        let folder = Folder::new();
        for name in [
            "a.toml",
            "src/a.py",
            "src/b/c.py",
            "src/b/c.js",
            "src/b/c.py~",
            "src/__pycache__/a.py",
            "src/node_modules/x.py",
            "src/ignored/x.py",
            "lib/x.py",
        ] {
            folder.writes(name, "x");
        }
        folder.writes(".git/config", "");
        folder.writes(".gitignore", "ignored/\n");
        let mut files = folder.files(&["a.toml", "src/**/*.py"]);
        files.look(None);
        assert_eq!(seen(&files, &folder), ["a.toml", "src/a.py", "src/b/c.py"]);
        let mut all = folder.files(&["src"]);
        all.look(None);
        assert_eq!(seen(&all, &folder), ["src/a.py", "src/b/c.js", "src/b/c.py"]);
        let mut named = folder.files(&["src/node_modules/*.py", "src/ignored/*"]);
        named.look(None);
        assert_eq!(seen(&named, &folder), ["src/ignored/x.py", "src/node_modules/x.py"]);
    }

    #[test]
    fn a_change_is_another_content_a_further_file_or_a_missing_one() {
        let folder = Folder::new();
        folder.writes("src/a.py", "1");
        let mut files = folder.files(&["src/**/*.py"]);
        files.look(None);
        let mut is_changed = || files.look(None).has_changed;
        folder.writes("src/a.py", "1");
        assert!(!is_changed(), "the same content");
        folder.writes("src/a.py", "2");
        assert!(is_changed());
        folder.writes("src/deep/b.py", "");
        assert!(is_changed());
        folder.writes("src/b.txt", "");
        assert!(!is_changed());
        fs::remove_dir_all(folder.0.join("src")).unwrap();
        assert!(is_changed());
        folder.writes("src/a.py", "2");
        assert!(is_changed(), "the folder is there again");
    }

    #[test]
    fn what_was_written_since_the_beginning_counts_in_the_first_look() {
        let folder = Folder::new();
        folder.writes("a.py", "1");
        let later = SystemTime::now() + Duration::from_secs(60);
        assert!(!folder.files(&["*.py"]).look(Some(later)).has_changed);
        assert!(folder.files(&["*.py"]).look(Some(SystemTime::UNIX_EPOCH)).has_changed);
    }

    #[actix_rt::test]
    async fn changes_are_told_wherever_the_files_come_from() {
        let folder = Folder::new();
        folder.writes("versions/1/app.toml", "1");
        std::os::unix::fs::symlink("versions/1", folder.0.join("current")).unwrap();
        std::os::unix::fs::symlink("current/app.toml", folder.0.join("app.toml")).unwrap();
        let (told, wake) = (Rc::<RefCell<usize>>::default(), Rc::<Notify>::default());
        let (telling, waking) = (Rc::clone(&told), Rc::clone(&wake));
        let patterns = folder.patterns(&["app.toml", "new/*.py"]);
        let changed = move || {
            *telling.borrow_mut() += 1;
            waking.notify_one();
        };
        let _watch = Watch::start(patterns, changed, |reason| panic!("all can be watched: {reason}"));
        let steps: [&dyn Fn(); 5] = [
            &|| folder.writes("versions/1/app.toml", "2"),
            // Kubernetes changes a file by the link to its folder.
            &|| {
                folder.writes("versions/2/app.toml", "3");
                std::os::unix::fs::symlink("versions/2", folder.0.join("next")).unwrap();
                fs::rename(folder.0.join("next"), folder.0.join("current")).unwrap();
            },
            &|| folder.writes("new/a.py", "1"),
            &|| fs::remove_dir_all(folder.0.join("new")).unwrap(),
            &|| folder.writes("new/a.py", "1"),
        ];
        for (at, step) in steps.iter().enumerate() {
            step();
            let told_in_time = timeout(Duration::from_secs(30), wake.notified()).await;
            assert!(told_in_time.is_ok(), "step {at} is told");
        }
    }
}

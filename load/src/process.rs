//! The cost of the measured process and the resources of this one: processor time, memory, open files.

use std::{fs, time::Duration};

use test_client::process::{cpu_time, memory_kib};

use crate::error::{LoadError, Result};

/// The memory of a process, in KiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub resident: u64,
    /// Of the resident memory: what no file holds, such as the heap.
    pub anonymous: u64,
    /// Of the resident memory: pages of files, mostly of the binary and its libraries.
    pub file: u64,
    /// Of the resident memory: what no other process shares now.
    pub private: u64,
    /// The resident memory, with each shared page divided among the processes that share it (PSS).
    pub proportional: u64,
}

/// The process under load, seen through `/proc`. Without a pid every figure is absent.
#[derive(Clone, Copy, Debug)]
pub struct ServerProcess {
    pid: Option<u32>,
}

/// The processes under load, such as the replicas of a broker.
#[derive(Clone, Debug, Default)]
pub struct Servers(Vec<ServerProcess>);

impl Servers {
    /// Fails immediately for a process that cannot be read.
    pub fn new(pids: &[u32]) -> Result<Self> {
        let servers = pids.iter().map(|pid| ServerProcess::new(Some(*pid)));
        servers.collect::<Result<_>>().map(Self)
    }

    /// Processor time of all of them; `None` if there are none.
    pub fn cpu(&self) -> Result<Option<Duration>> {
        self.sum(ServerProcess::cpu)
    }

    /// Resident memory of all of them; `None` if there are none.
    pub fn resident_kib(&self) -> Result<Option<u64>> {
        self.sum(ServerProcess::resident_kib)
    }

    fn sum<T: std::iter::Sum>(&self, of: impl Fn(ServerProcess) -> Result<Option<T>>) -> Result<Option<T>> {
        let sums = self
            .0
            .iter()
            .map(|server| of(*server))
            .collect::<Result<Option<Vec<T>>>>()?;
        Ok(sums.filter(|sums| !sums.is_empty()).map(|sums| sums.into_iter().sum()))
    }
}

impl ServerProcess {
    /// Fails immediately for a process that cannot be read, and not after minutes of load.
    pub fn new(pid: Option<u32>) -> Result<Self> {
        let server = Self { pid };
        server.cpu()?;
        server.resident_kib()?;
        Ok(server)
    }

    /// Processor time of all threads since the process began, in steps of a clock tick (mostly 10 ms).
    pub fn cpu(self) -> Result<Option<Duration>> {
        let Some(pid) = self.pid else { return Ok(None) };
        let time = cpu_time(pid).map_err(|e| unreadable(pid, &e.to_string()))?;
        Ok(Some(time))
    }

    /// How often the threads of the process gave up the processor to wait, and so were woken.
    pub fn wakeups(self) -> Result<u64> {
        let mut wakeups = 0;
        self.for_each_thread("status", |status| {
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            wakeups += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
        })?;
        Ok(wakeups)
    }

    /// How long the threads that live have run, in nanoseconds: finer than [`Self::cpu`], for a short time or little work.
    pub fn run_time(self) -> Result<Duration> {
        let mut run = 0;
        self.for_each_thread("schedstat", |stat| {
            let first = stat.split_whitespace().next();
            run += first.and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        })?;
        Ok(Duration::from_nanos(run))
    }

    fn for_each_thread(self, file: &str, mut read: impl FnMut(&str)) -> Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_err(|e| unreadable(pid, &e.to_string()))?;
        for thread in threads {
            // A thread may end while it is being read.
            if let Ok(text) = thread.and_then(|thread| fs::read_to_string(thread.path().join(file))) {
                read(&text);
            }
        }
        Ok(())
    }

    pub fn resident_kib(self) -> Result<Option<u64>> {
        let Some(pid) = self.pid else { return Ok(None) };
        let kib = memory_kib(pid, "VmRSS").map_err(|e| unreadable(pid, &e.to_string()))?;
        Ok(Some(kib))
    }

    /// The memory of the process and who shares it.
    pub fn memory(self) -> Result<Option<Memory>> {
        let Some(pid) = self.pid else { return Ok(None) };
        let sums = read(pid, "smaps_rollup")?;
        let sum = |name: &str| {
            let line = sums.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib = line
                .and_then(|rest| rest.split_whitespace().next())
                .and_then(|kib| kib.parse::<u64>().ok());
            kib.ok_or_else(|| unreadable(pid, &format!("smaps_rollup has no {name}")))
        };
        let (resident, anonymous) = (sum("Rss")?, sum("Anonymous")?);
        Ok(Some(Memory {
            resident,
            anonymous,
            file: resident.saturating_sub(anonymous),
            private: sum("Private_Clean")? + sum("Private_Dirty")?,
            proportional: sum("Pss")?,
        }))
    }
}

/// The processes that a process has started.
pub fn children(of: ServerProcess) -> Result<Vec<ServerProcess>> {
    let processes = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // The parent is the second field after the name.
    let is_child = |pid: &u32| {
        let stat = read(*pid, "stat").unwrap_or_default();
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        parent.is_some_and(|parent| parent.parse().ok() == of.pid)
    };
    Ok(processes
        .filter(is_child)
        .map(|pid| ServerProcess { pid: Some(pid) })
        .collect())
}

fn read(pid: u32, file: &str) -> Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{file}")).map_err(|e| unreadable(pid, &e.to_string()))
}

fn unreadable(pid: u32, reason: &str) -> LoadError {
    LoadError::Process {
        pid,
        reason: reason.into(),
    }
}

/// Processor time of this process.
pub fn own_cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(spent).unwrap_or_default()
}

/// Raises the soft limit of open files, up to the hard one, so that `connections` fit.
pub fn allow_connections(connections: usize) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const OTHER_FILES: u64 = 64;
    let needed = connections as u64 + OTHER_FILES;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|limit| limit >= needed) {
        return Ok(());
    }
    if let Some(limit) = maximum.filter(|limit| *limit < needed) {
        return Err(LoadError::Files { needed, limit });
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(needed),
            maximum,
        },
    )
    .map_err(|_| LoadError::Files {
        needed,
        limit: maximum.unwrap_or(needed),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_read_and_an_unknown_one_is_an_error() {
        let own = ServerProcess::new(Some(std::process::id())).unwrap();
        assert!(own.resident_kib().unwrap() > Some(100));
        let memory = own.memory().unwrap().unwrap();
        assert_eq!(memory.resident, memory.anonymous + memory.file);
        assert!(memory.anonymous > 0 && memory.proportional <= memory.resident && memory.private <= memory.resident);
        assert!(own.run_time().unwrap() > Duration::ZERO);
        assert!(ServerProcess::new(Some(u32::MAX)).is_err());
        assert_eq!(ServerProcess::new(None).unwrap().cpu().unwrap(), None);
    }

    #[test]
    fn the_children_of_a_process_are_found() {
        let own = ServerProcess::new(Some(std::process::id())).unwrap();
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let found = children(own).unwrap();
        let is_found = found.iter().any(|process| process.pid == Some(child.id()));
        let _ = child.kill();
        let _ = child.wait();
        assert!(is_found, "{found:?}");
    }

    #[test]
    fn more_connections_than_the_hard_limit_are_a_clear_error() {
        assert!(allow_connections(10).is_ok());
        let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        if let Some(hard) = hard.and_then(|h| usize::try_from(h).ok()) {
            assert!(allow_connections(hard).unwrap_err().to_string().contains("ulimit"));
        }
    }
}

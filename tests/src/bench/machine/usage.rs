//! The CPU time and the memory of running processes, as Linux counts them.

use crate::bench::figure::{Figure, Quantity, Target};
use std::{collections::BTreeMap, fs, time::Duration};

/// Clock ticks per second in the process statistics of Linux.
const TICKS: u64 = 100;
/// The role of the server that has a process for each connection.
const POSTGRES: &str = "postgres";

/// What counts with a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The process alone: for example the sandbox service without the commands of sessions.
    Process,
    /// All processes below it too, and those of them that have ended and that their parent has noticed.
    Tree,
}

#[derive(Debug, Clone)]
pub struct MeasuredProcess {
    /// Its name in the report.
    pub name: String,
    pub pid: u32,
    pub extent: Extent,
}

impl MeasuredProcess {
    /// A process of a stack, by its role in `ready.json`.
    pub fn of_stack(role: &str, pid: u32) -> Self {
        let extent = if role == POSTGRES { Extent::Tree } else { Extent::Process };
        Self { name: role.to_owned(), pid, extent }
    }
}

/// CPU time on all cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    fn plus(self, other: Self) -> Self {
        Self { user: self.user + other.user, system: self.system + other.system }
    }

    fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
        }
    }
}

/// Measures processes from its start to its end.
#[derive(Debug)]
pub struct Meter(Vec<(MeasuredProcess, CpuTime)>);

impl Meter {
    /// Starts: notes the CPU time so far, and resets the peaks of the memory.
    pub fn start(processes: &[MeasuredProcess]) -> Self {
        let before = |process: &MeasuredProcess| {
            members(process).into_iter().for_each(reset_peak);
            (process.clone(), cpu_time(process.pid, process.extent))
        };
        Self(processes.iter().map(before).collect())
    }

    /// Returns what each process has used since the start.
    pub fn stop(self) -> Vec<Usage> {
        let usage = |(process, before): (MeasuredProcess, CpuTime)| Usage {
            cpu: cpu_time(process.pid, process.extent).since(before),
            peak_bytes: members(&process).into_iter().map(peak_bytes).sum(),
            name: process.name,
        };
        self.0.into_iter().map(usage).collect()
    }
}

#[derive(Debug, Clone)]
pub struct Usage {
    /// Its name in the report.
    pub name: String,
    pub cpu: CpuTime,
    /// The peak of its resident memory; of a tree the sum, in which shared pages count for each process.
    pub peak_bytes: u64,
}

impl Usage {
    /// Returns the lines of a report, with a target for the memory.
    pub fn figures(&self, memory: Target) -> [Figure; 3] {
        let name = &self.name;
        let seconds = |time: Duration| Quantity { value: time.as_secs_f64(), unit: "s" };
        let peak = Quantity { value: self.peak_bytes as f64 / (1024.0 * 1024.0), unit: "MB" };
        [
            Figure::number(format!("CPU of {name}, user"), seconds(self.cpu.user), 1, Target::None),
            Figure::number(format!("CPU of {name}, system"), seconds(self.cpu.system), 1, Target::None),
            Figure::number(format!("peak memory, {name}"), peak, 1, memory),
        ]
    }
}

/// Returns the CPU time of a process. The time of a process whose parent ended before it is lost.
pub fn cpu_time(pid: u32, extent: Extent) -> CpuTime {
    if extent == Extent::Process {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        return parse(&stat).map_or_else(CpuTime::default, |process| process.own);
    }
    let processes = processes();
    let below = tree(&processes, pid).into_iter().filter_map(|pid| processes.get(&pid));
    below.fold(CpuTime::default(), |sum, process| sum.plus(process.own).plus(process.ended))
}

/// Returns the resident memory of a process; 0 after its end.
pub fn resident_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// Returns the peak of the resident memory of a process since the last reset; 0 after its end.
pub fn peak_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmHWM:")
}

/// Resets the peak of the resident memory of a process. One of another user keeps its peak.
pub fn reset_peak(pid: u32) {
    drop(fs::write(format!("/proc/{pid}/clear_refs"), "5"));
}

fn status_bytes(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

/// What Linux says of a process.
#[derive(Debug, Clone, Copy)]
struct ProcessStatistics {
    parent: u32,
    own: CpuTime,
    /// Its children that have ended, and theirs.
    ended: CpuTime,
}

fn processes() -> BTreeMap<u32, ProcessStatistics> {
    let entries = fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse(&stat)?))
    })
    .collect()
}

/// Reads the line of a process. Its name may contain spaces. After it come the state, the parent and, from the 14th field on, the times of the process
/// and of its children that have ended.
fn parse(stat: &str) -> Option<ProcessStatistics> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let time = |at: usize| {
        let ticks: u64 = fields.get(at)?.parse().ok()?;
        Some(Duration::from_millis(ticks * (1_000 / TICKS)))
    };
    Some(ProcessStatistics {
        parent: fields.get(1)?.parse().ok()?,
        own: CpuTime { user: time(11)?, system: time(12)? },
        ended: CpuTime { user: time(13)?, system: time(14)? },
    })
}

/// The ids of the processes that count with one.
fn members(process: &MeasuredProcess) -> Vec<u32> {
    match process.extent {
        Extent::Process => vec![process.pid],
        Extent::Tree => tree(&processes(), process.pid),
    }
}

/// The ids of a process and of all processes below it.
fn tree(processes: &BTreeMap<u32, ProcessStatistics>, root: u32) -> Vec<u32> {
    let (mut found, mut open) = (vec![], vec![root]);
    while let Some(pid) = open.pop() {
        found.push(pid);
        open.extend(processes.iter().filter(|(_, process)| process.parent == pid).map(|(pid, _)| *pid));
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_line_is_read_after_the_name_of_the_process() {
        let line = "7 (a) b (c)) S 3 7 7 0 -1 4194304 1 2 3 4 150 25 3000 4 20 0 1 0 9 9 9";
        let ProcessStatistics { parent, own, ended } = parse(line).unwrap();
        let ms = Duration::from_millis;
        assert_eq!(parent, 3);
        assert_eq!(own, CpuTime { user: ms(1_500), system: ms(250) });
        assert_eq!(ended, CpuTime { user: ms(30_000), system: ms(40) });
        assert!(parse("7 (a) S 3").is_none());
    }

    #[test]
    fn a_tree_has_the_processes_below_its_root_only() {
        let process =
            |parent| ProcessStatistics { parent, own: CpuTime::default(), ended: CpuTime::default() };
        let processes = [(1, 0), (2, 1), (3, 2), (4, 1), (5, 3)];
        let processes = processes.into_iter().map(|(pid, parent)| (pid, process(parent))).collect();
        let mut below = tree(&processes, 2);
        below.sort_unstable();
        assert_eq!(below, [2, 3, 5]);
    }

    #[test]
    fn this_process_uses_memory_and_not_the_time_of_others() {
        let own = MeasuredProcess::of_stack("gateway", std::process::id());
        let [usage]: [Usage; 1] = Meter::start(std::slice::from_ref(&own)).stop().try_into().unwrap();
        assert!(usage.peak_bytes > 0);
        assert!(cpu_time(own.pid, Extent::Process).total() <= cpu_time(own.pid, Extent::Tree).total());
        assert_eq!(usage.figures(Target::AtMost(1e6)).map(|figure| figure.is_met()), [true; 3]);
    }
}

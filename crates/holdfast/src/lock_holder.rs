//! Which process holds a file's lock, so that who finds it held knows whom to look for. Linux tells; elsewhere nobody is named.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where Linux lists all locks (proc(5)).
const LOCKS: &str = "/proc/locks";

/// In words, with a space before them: the process that holds a lock on the file. Empty: it is not known.
pub fn told(file: &Path) -> String {
    let found = std::fs::metadata(file).ok().zip(std::fs::read_to_string(LOCKS).ok());
    let pid = found.and_then(|(meta, locks)| holder(&locks, meta.dev(), meta.ino()));
    pid.map(|pid| format!(" (process {pid} has it)")).unwrap_or_default()
}

/// The process that holds a lock on this inode. One that is in another container has the number 0 here, which is nobody's.
fn holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let major = ((device >> 8) & 0xfff) | ((device >> 32) & !0xfff);
    let minor = (device & 0xff) | ((device >> 12) & !0xff);
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    let rows = locks.lines().filter(|line| !line.contains("->"));
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // NUMBER: KIND ADVISORY READ|WRITE PID MAJOR:MINOR:INODE START END
        (words.get(5) == Some(&file.as_str())).then(|| words.get(4)?.parse().ok()).flatten()
    };
    rows.filter_map(of).find(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_the_one_of_this_inode_and_not_one_that_waits() {
        let locks = "1: FLOCK  ADVISORY  WRITE 77 fe:01:12 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 78 fe:00:13 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 79 fe:01:13 0 EOF\n\
                     4: POSIX  ADVISORY  WRITE 80 fe:01:13 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 0 fe:01:14 0 EOF\n";
        let device = 0xfe01;
        assert_eq!(holder(locks, device, 12), Some(77));
        assert_eq!(holder(locks, device, 13), Some(80));
        assert_eq!(
            (holder(locks, device, 14), holder(locks, device, 1), holder("rubbish\n", device, 1)),
            (None, None, None)
        );
    }
}

//! Whether a disk sleeps, without waking it.
//!
//! - `device/power/runtime_status` in sysfs: the kernel itself has suspended the device, or not.
//! - The ATA command CHECK POWER MODE, passed through SCSI (T10 SAT-3, 12.2; T13 ACS-3, 7.3). It does not
//!   wake a disk in standby. But a drive may count it as use and start its standby timer anew (ACS-3,
//!   4.15.4), so it is sent rarely. The kernel asks for CAP_SYS_RAWIO, or write access to the device.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::syscall::done;

/// What is known of a disk's power state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// It is spinning.
    Awake,
    /// It has stopped, or is suspended.
    Asleep,
    /// It does not report its state, or this process may not ask.
    #[default]
    Unknown,
}

/// The power state in sysfs of the disk with this kernel name. `sys_block` is `/sys/block`. Does not access
/// the disk.
pub fn suspended(sys_block: &Path, name: &str) -> Power {
    let status = sys_block.join(name).join("device/power/runtime_status");
    match fs::read_to_string(status).as_deref().map(str::trim) {
        Ok("suspended") => Power::Asleep,
        // "active" says nothing of the drive's own timer.
        _ => Power::Unknown,
    }
}

/// Asks the drive itself (CHECK POWER MODE). Opening the device would resume a suspended one, so ask
/// [`suspended`] first. Waits a second at most, or as long as the driver recovers.
///
/// # Errors
/// The device cannot be opened, is no SCSI or ATA disk (`ENOTTY`, `EINVAL`), or asking is not permitted.
pub fn check_power_mode(device: &Path) -> io::Result<Power> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: OwnedFd = rustix::fs::open(device, flags, Mode::empty())?;
    let file = File::from(file);
    let mut sense = [0u8; SENSE_BYTES];
    let mut command = check_power_mode_command();
    let mut header = SgIoHdr {
        interface_id: i32::from(b'S'),
        dxfer_direction: SG_DXFER_NONE,
        cmd_len: command.len() as u8,
        mx_sb_len: SENSE_BYTES as u8,
        cmdp: command.as_mut_ptr(),
        sbp: sense.as_mut_ptr(),
        timeout: 1_000,
        ..SgIoHdr::default()
    };
    // SAFETY: the header has the layout of the kernel's `sg_io_hdr`. Its command and sense buffers live until
    // the call returns, with the lengths stated, and there is no data transfer.
    done(unsafe { libc::ioctl(file.as_raw_fd(), SG_IO as _, &raw mut header) })?;
    Ok(power_mode(&sense[..usize::from(header.sb_len_wr).min(SENSE_BYTES)]))
}

/// The request code `SG_IO` of `<scsi/sg.h>`.
const SG_IO: u32 = 0x2285;
const SG_DXFER_NONE: i32 = -1;
const SENSE_BYTES: usize = 32;

/// `struct sg_io_hdr` of `<scsi/sg.h>`.
#[derive(Default)]
#[repr(C)]
struct SgIoHdr {
    interface_id: i32,
    dxfer_direction: i32,
    cmd_len: u8,
    mx_sb_len: u8,
    iovec_count: u16,
    dxfer_len: u32,
    dxferp: *mut u8,
    cmdp: *mut u8,
    sbp: *mut u8,
    timeout: u32,
    flags: u32,
    pack_id: i32,
    usr_ptr: *mut u8,
    status: u8,
    masked_status: u8,
    msg_status: u8,
    sb_len_wr: u8,
    host_status: u16,
    driver_status: u16,
    resid: i32,
    duration: u32,
    info: u32,
}

/// ATA PASS-THROUGH (16) with CHECK POWER MODE: protocol non-data, and the registers wanted back (`CK_COND`).
fn check_power_mode_command() -> [u8; 16] {
    let mut command = [0; 16];
    (command[0], command[1], command[2], command[14]) = (0x85, 3 << 1, 0x20, 0xE5);
    command
}

/// The power mode in sense data: the count field of the ATA status return descriptor.
fn power_mode(sense: &[u8]) -> Power {
    let descriptor = match sense {
        // Descriptor format, current; the first descriptor is that of ATA.
        [0x72 | 0x73, _, _, _, _, _, _, _, descriptor @ ..] if descriptor.first() == Some(&0x09) => {
            descriptor
        }
        _ => return Power::Unknown,
    };
    match descriptor.get(5) {
        // Standby, and standby_y of the extended power conditions; spun down with a non-volatile cache.
        Some(0x00 | 0x01 | 0x40) => Power::Asleep,
        // Idle of every kind, and active.
        Some(0x41 | 0x80..=0x83 | 0xFF) => Power::Awake,
        _ => Power::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sense(count: u8) -> [u8; 22] {
        let mut sense = [0; 22];
        (sense[0], sense[1], sense[3], sense[7]) = (0x72, 0x01, 0x1D, 14);
        (sense[8], sense[9], sense[13], sense[21]) = (0x09, 0x0C, count, 0x50);
        sense
    }

    #[test]
    fn the_count_field_says_whether_a_drive_turns() {
        for (count, power) in [
            (0x00, Power::Asleep),
            (0x01, Power::Asleep),
            (0x40, Power::Asleep),
            (0x80, Power::Awake),
            (0x82, Power::Awake),
            (0xFF, Power::Awake),
            (0x33, Power::Unknown),
        ] {
            assert_eq!(power_mode(&sense(count)), power, "{count:#x}");
        }
        for cut in 0..14 {
            assert_eq!(power_mode(&sense(0)[..cut]), Power::Unknown, "{cut}");
        }
        let mut other = sense(0);
        other[8] = 0x02;
        assert_eq!(power_mode(&other), Power::Unknown);
    }

    #[test]
    fn what_is_no_disk_does_not_tell() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = check_power_mode(file.path()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
        assert!(check_power_mode(Path::new("/not/there")).is_err());
    }

    #[test]
    fn a_suspended_device_sleeps() {
        let sys = tempfile::tempdir().unwrap();
        let power = sys.path().join("sdx/device/power");
        fs::create_dir_all(&power).unwrap();
        for (text, state) in
            [("suspended\n", Power::Asleep), ("active\n", Power::Unknown), ("", Power::Unknown)]
        {
            fs::write(power.join("runtime_status"), text).unwrap();
            assert_eq!(suspended(sys.path(), "sdx"), state, "{text}");
        }
        assert_eq!(suspended(sys.path(), "sdy"), Power::Unknown);
    }

    #[test]
    fn the_header_has_the_size_of_the_kernels() {
        let size = if cfg!(target_pointer_width = "64") { 88 } else { 64 };
        assert_eq!(size_of::<SgIoHdr>(), size);
    }
}

//! Drops privileges that Apus does not need.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs,
};

use crate::knob::{Access, AnySetting, Error, Lasts, Setting as _, along};

/// The capabilities (capabilities(7)) that a process with user ID 0 needs to change these settings.
pub fn needed<'a>(settings: impl IntoIterator<Item = &'a AnySetting>) -> CapabilitySet {
    settings.into_iter().fold(CapabilitySet::empty(), |needed, setting| {
        // A replaced file of configuration keeps its owner and its mode.
        let owner = CapabilitySet::CHOWN | CapabilitySet::FOWNER;
        let files = if setting.lasts() == Lasts::AcrossReboots { owner } else { CapabilitySet::empty() };
        needed | setting.capability() | files
    })
}

/// The capabilities needed to change these settings and the other settings that the changes affect on this machine.
pub fn needed_to_change<'a>(
    access: &Access,
    settings: impl IntoIterator<Item = &'a AnySetting>,
) -> Result<CapabilitySet, Error> {
    settings.into_iter().try_fold(CapabilitySet::empty(), |all, setting| {
        Ok(all | needed([setting]) | needed(&along::along(access, setting)?))
    })
}

/// Those capabilities in `needed` that are not effective in the calling thread.
pub fn lacking(needed: CapabilitySet) -> Result<CapabilitySet, Error> {
    let now = capabilities(None).map_err(|e| Error::of("read the capabilities", &e.into()))?;
    Ok(needed - now.effective)
}

/// Permanently drops all capabilities of the process except those in `keep`. Programs that the process starts cannot
/// regain them. The process must have only one thread.
pub fn keep_only(keep: CapabilitySet) -> Result<(), Error> {
    let failed = |e: rustix::io::Errno| Error::of("give up capabilities", &e.into());
    let now = capabilities(None).map_err(failed)?.permitted;
    let keep = keep & now;
    // Without CAP_SETPCAP, the bounding set cannot be lowered. Then an earlier call of this function has already
    // lowered it, and dropped capabilities cannot be regained (prctl(2), PR_SET_NO_NEW_PRIVS).
    let others = CapabilitySet::all().iter().filter(|capability| !keep.contains(*capability));
    for capability in others.filter(|_| now.contains(CapabilitySet::SETPCAP)) {
        // An older kernel may not know all of these capabilities.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability).map_err(failed)?;
        }
    }
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(failed)?;
    set_no_new_privs(true).map_err(failed)
}

/// Suspends the calling thread's capabilities, except those in `keep`, until the thread calls [`resume`].
pub fn rest(keep: CapabilitySet) -> Result<(), Error> {
    let failed = |e: rustix::io::Errno| Error::of("set capabilities aside", &e.into());
    let now = capabilities(None).map_err(failed)?;
    set_capabilities(None, CapabilitySets { effective: keep & now.permitted, ..now }).map_err(failed)
}

/// Makes all capabilities effective again that [`rest`] suspended.
pub fn resume() -> Result<(), Error> {
    let failed = |e: rustix::io::Errno| Error::of("take up capabilities", &e.into());
    let now = capabilities(None).map_err(failed)?;
    set_capabilities(None, CapabilitySets { effective: now.permitted, ..now }).map_err(failed)
}

/// The names of the capabilities in `set`, for messages.
pub fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{BootFragment, HwpRequest, IrqAffinity, Sysctl};

    #[test]
    fn only_what_the_settings_need() {
        let of = |setting: AnySetting| names(needed([&setting]));
        assert!(of(IrqAffinity::new(1).into()).is_empty());
        assert_eq!(of(Sysctl::new("net.core.busy_poll").into()), ["CAP_NET_ADMIN"]);
        assert_eq!(of(HwpRequest::new(1).into()), ["CAP_SYS_RAWIO"]);
        assert_eq!(of(BootFragment {}.into()), ["CAP_CHOWN", "CAP_FOWNER"]);
    }

    #[test]
    fn what_is_given_up_is_gone() {
        if !rustix::process::geteuid().is_root() {
            testkit::skip("needs root");
            return;
        }
        // In a separate thread, because capabilities belong to the thread.
        std::thread::spawn(|| {
            keep_only(CapabilitySet::NET_ADMIN).unwrap();
            let now = capabilities(None).unwrap();
            assert_eq!((now.effective, now.permitted), (CapabilitySet::NET_ADMIN, CapabilitySet::NET_ADMIN));
            assert!(!capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap());
            assert!(rustix::system::sethostname(b"x").is_err());
            rest(CapabilitySet::empty()).unwrap();
            assert_eq!(capabilities(None).unwrap().effective, CapabilitySet::empty());
            resume().unwrap();
            assert_eq!(capabilities(None).unwrap().effective, CapabilitySet::NET_ADMIN);
        })
        .join()
        .unwrap();
    }
}

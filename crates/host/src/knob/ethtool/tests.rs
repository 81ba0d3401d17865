//! Tests on a veth pair in a separate network namespace, as root.

use super::*;
use crate::knob::{AnySetting, Knob, Napi, Restored, Theirs, napi_queues};
use crate::testing::{in_own_namespace, tap};

fn back_and_forth(setting: impl Into<AnySetting>, wanted: &Value) {
    let (access, knob) = (Access::live().unwrap(), Knob(setting.into()));
    let change = knob.set(&access, wanted).unwrap();
    assert!(change.verdict.is_good(), "{}: {change:?}", knob.0.label());
    assert!(!knob.holds(&change.before, wanted), "{}: was {} before", knob.0.label(), change.before);
    let restored = knob.restore(&access, &change.before, change.verdict.now(), Theirs::Keep).unwrap();
    assert_eq!(restored, Restored::Restored, "{}", knob.0.label());
    assert_eq!(knob.read(&access).unwrap(), Some(change.before));
}

#[test]
fn veth_takes_and_gives_back() {
    in_own_namespace(|| {
        back_and_forth(Channels::new("v0"), &Value::fields([("rx", 2), ("tx", 2)]));
        back_and_forth(Features::new("v0"), &Value::fields([("rx-gro", "on"), ("tx-tcp-segmentation", "off")]));
        let access = Access::live().unwrap();
        Knob(Features::new("v0")).set(&access, &Value::fields([("rx-gro", "on")])).unwrap();
        assert_eq!(napi_queues(&access, "v0").unwrap().first(), Some(&0), "GRO makes veth use NAPI");
        let wanted = [
            ("defer-hard-irqs", 2),
            ("gro-flush-timeout", 200_000),
            ("irq-suspend-timeout", 20_000_000),
            ("threaded", 1),
        ];
        back_and_forth(Napi::new("v0", 0), &Value::fields(wanted));
    });
}

#[test]
fn a_tap_takes_moderation_and_gives_it_back() {
    in_own_namespace(|| {
        if !tap() {
            return;
        }
        // A field that the driver lacks is accepted if its value is 0.
        back_and_forth(Coalesce::new("t0"), &Value::fields([("rx-max-frames", 8), ("tx-usecs", 0)]));
        let access = Access::live().unwrap();
        let set = |name: &str, value| {
            Knob(AnySetting::from(Coalesce::new("t0"))).set(&access, &Value::fields([(name, value)]))
        };
        let change = set("rx-max-frames", 1000).unwrap();
        assert!(!change.verdict.is_good() && change.verdict.now().is_some(), "the driver took 64: {change:?}");
        let error = set("tx-usecs", 4).unwrap_err();
        assert!(error.to_string().contains("set tx-usecs in the coalescing of t0: refused"), "{error}");
    });
}

#[test]
fn a_short_name_becomes_what_the_driver_lets_be_switched() {
    in_own_namespace(|| {
        let access = Access::live().unwrap();
        let features = Features::new("v0");
        let meant = features.meant(&access, Value::fields([("tx", "off"), ("gro", "on"), ("ntuple", "on")])).unwrap();
        let meant = meant.as_fields().unwrap();
        assert!(meant.keys().any(|name| name.starts_with("tx-checksum-")), "{meant:?}");
        assert!(!meant.contains_key("tx") && meant.get("rx-gro").is_some_and(|text| text == "on"), "{meant:?}");
        assert!(meant.contains_key("ntuple"), "what the driver does not have is refused by name: {meant:?}");
    });
}

#[test]
fn what_veth_does_not_have_is_not_there() {
    in_own_namespace(|| {
        let access = Access::live().unwrap();
        assert_eq!(Knob(Coalesce::new("v0")).read(&access).unwrap(), None);
        assert_eq!(Knob(CoalesceQueue::new("v0", 0)).read(&access).unwrap(), None);
        assert_eq!(Knob(Rings::new("v0")).read(&access).unwrap(), None);
        assert_eq!(Knob(PrivateFlags::new("v0")).read(&access).unwrap(), None);
        assert_eq!(Knob(Channels::new("nowhere")).read(&access).unwrap(), None);
        let error = Knob(Coalesce::new("v0")).set(&access, &Value::fields([("rx-usecs", 0)])).unwrap_err();
        assert!(error.is_absent(), "{error}");
        let refused =
            |setting: AnySetting, name, value| Knob(setting).set(&access, &Value::fields([(name, value)])).unwrap_err();
        let error = refused(Features::new("v0").into(), "ntuple", "on");
        assert!(error.to_string().contains("rx-ntuple-filter"), "{error}");
        let error = refused(Channels::new("v0").into(), "rx", "100000");
        assert!(error.to_string().contains("at most"), "{error}");
        Knob(Features::new("v0")).set(&access, &Value::fields([("rx-gro", "on")])).unwrap();
        let error = refused(Napi::new("v0", 0).into(), "threaded", "7");
        assert!(matches!(error, Error::Refused { .. }), "{error}");
        // The error contains the kernel's extended acknowledgement, with the field's name and range.
        assert!(error.to_string().contains("integer out of range: threaded, 0 to "), "{error}");
    });
}

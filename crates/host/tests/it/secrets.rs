//! Secrets of all kinds, planted wherever a snapshot looks: none may be in it, by the program nor by the script.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use host::facts::Root;
use host::snapshot::{Plan, Snapshot};

use crate::support::Scratch;

/// Files, and the texts in them; what stands between `⟦` and `⟧` is a secret.
const PLANTED: &[(&str, &str)] = &[
    (
        "proc/cmdline",
        "BOOT_IMAGE=(hd0,gpt3)/ostree/⟦9f1c2b3a4d5e6f708192a3b4c5d6e7f8⟧/vmlinuz-5.14.0 root=UUID=⟦7e1b3e4a-12ab-4d5e-8f60-0123456789ab⟧ \
         psk=⟦Wifi4you77⟧ systemd.setenv=DB_PASSWORD=⟦hunter2secret⟧ serial=⟦8FJ2KX3⟧ login=⟦joe.doe⟧ rd.luks.key=⟦/keys/vault.key⟧:UUID=x \
         rd.luks.uuid=⟦luks-55aa77bb-0000-4abc-9def-aabbccddeeff⟧ ip=⟦10.11.12.13⟧::⟦10.11.12.1⟧:255.255.255.0:⟦db7.corp.example⟧:eth0:none \
         nfsroot=⟦192.168.77.5⟧:/srv/⟦customer-acme⟧ netroot=iscsi:⟦chapuser⟧:⟦chapsecret99⟧@⟦172.16.5.4⟧::3260::⟦iqn.2020-01.com.acme⟧:t1 \
         rd.iscsi.initiator=⟦iqn.1994-05.com.redhat:ab12cd⟧ rd.iscsi.password=⟦initpass12345⟧ rd.iscsi.in.password=⟦revpass6789⟧ \
         inst.ks=http://⟦kick⟧:⟦ksPassw0rd⟧@⟦deploy.corp⟧/ks.cfg inst.sshpw=⟦rescue4711⟧ rootpw=⟦toor-toor⟧ vncpassword=⟦vnc00112⟧ \
         inst.sshkey=\"ssh-ed25519 ⟦AAAAC3NzaC1lZDI1NTE5AAAAIJrsaKeyMaterialHere⟧ ⟦joe@laptop⟧\" BOOTIF=⟦01-52-54-00-ab-cd-ef⟧ \
         ifname=net0:⟦52:54:00:11:22:33⟧ AWS_SECRET=⟦wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY⟧ aws=⟦AKIAIOSFODNN7EXAMPLE⟧ \
         bearer=⟦ya29.a0AfH6SMBxyzzy123⟧ jwt=⟦eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJqb2UifQ.c2lnbmF0dXJl⟧ \
         ⟦c2VjcmV0LWJsb2ItaW4tYmFzZTY0LWZvcm0=⟧ ⟦barewordsecret⟧ ds=nocloud-net;s=https://⟦meta.corp.example⟧/;h=⟦node-17⟧ \
         systemd.hostname=⟦trader9.fin.example⟧ hostname=⟦trader9⟧ ipmi_user=⟦ADMINUSR⟧ ipmi_pass=⟦calvin123⟧ pin=⟦481516⟧ \
         rd.znet=qeth,⟦0.0.0600⟧ zfcp.device=0.0.1900,⟦0x500507630300c562⟧ proxy=⟦http://proxy.corp:3128⟧ wpa-psk=⟦abcdef0123456789⟧ \
         netconsole=6665@⟦10.9.8.7⟧/eth1,514@⟦10.9.8.6⟧/⟦12:34:56:78:9a:bc⟧ dyndbg=\"file ⟦secret_driver.c⟧ +p\" \
         resume=/dev/mapper/⟦acme-swapvol⟧ luks.options=⟦keyfile-offset=77⟧ ignition.config.url=https://⟦ign.corp⟧/x?token=⟦tok-5f4dcc3b⟧ \
         isolcpus=managed_irq,domain,2-7 nohz_full=2-7 console=ttyS0,115200n8 crashkernel=512M tsc=reliable quiet \
         -- --password ⟦afterdashes⟧ --token=⟦initstoken⟧\n",
    ),
    (
        "boot/loader/entries/⟦3f2504e04f8911d39a0c0305e82c3301⟧-5.14.0.conf",
        "title ⟦ACME Build⟧\nversion 5.14.0\nmachine-id ⟦5d41402abc4b2a76b9719d911017c592⟧\nlinux /boot/⟦customer9⟧/vmlinuz-5.14.0\n\
         options quiet psk=⟦entrypsk42⟧ ⟦loosesecret⟧\ngrub_users ⟦grubadmin⟧\n",
    ),
    (
        "etc/default/grub",
        "GRUB_PASSWORD=⟦grub.pbkdf2.sha512.10000.ABCDEF⟧\nGRUB_CMDLINE_LINUX=\"quiet rd.luks.key='⟦quoted key⟧' login=⟦grublogin⟧\"\n\
         GRUB_CMDLINE_LINUX_DEFAULT='nohz_full=2-7 token=⟦grubtok⟧'\n",
    ),
    (
        "etc/sysconfig/irqbalance",
        "# PASSWORD=⟦commented1⟧\nIRQBALANCE_BANNED_CPULIST=2-7\nDB_PASSWORD=⟦envpass55⟧\nexport API_KEY=\"⟦sk-live-51Habcdef⟧\"\n\
         IRQBALANCE_ARGS=\"--policyscript=/root/⟦policy-joe⟧ --banirq=5 ⟦strayword⟧ --token ⟦87654321⟧ -p ⟦cafebabe⟧\"\n⟦bG9vc2UgYmFzZTY0IGxpbmU=⟧\n",
    ),
    (
        "etc/systemd/system.conf",
        "[Manager]\nCPUAffinity=0 1\nDefaultEnvironment=\"TOKEN=⟦sysdtoken1⟧\" OTHER=⟦sysdtoken2⟧\nManagerEnvironment=A=⟦mgrenv⟧\n\
         # ⟦a comment⟧\nStatusUnitFormat=⟦freeform⟧\n",
    ),
    ("etc/systemd/system.conf.d/10-x.conf", "[Manager]\nDefaultEnvironment=PGPASS=⟦pgsecret77⟧\nCPUAffinity=40-41\n"),
    (
        "var/lib/kubelet/config.yaml",
        "kind: KubeletConfiguration\ncpuManagerPolicy: static\ntoken: ⟦9a08jv.c0izixklcxtmnze7⟧\nstaticPodURL: https://⟦pods.corp⟧/\n\
         clusterDNS:\n- ⟦10.96.0.10⟧\nclusterDomain: ⟦acme.local⟧\nproviderID: ⟦aws-i-0abc⟧\n  nested: ⟦indented1⟧\n",
    ),
    (
        "etc/kubernetes/kubelet.conf",
        "apiVersion: v1\nclient-certificate-data: ⟦LS0tLS1CRUdJTiBDRVJUSUZJ⟧\nclient-key-data: ⟦LS0tLS1CRUdJTiBSU0EgUFJJ⟧\n\
         current-context: ⟦prod-admin⟧\nserver: ⟦api.corp.example⟧:6443\n",
    ),
    (
        "var/lib/kubelet/cpu_manager_state",
        "{\"policyName\":\"static\",\"defaultCpuSet\":\"0-1\",\"entries\":{\"⟦0f9e8d7c-6b5a-4c3d-9e2f-112233445566⟧\":{\"⟦billing⟧\":\"2-3\"}}}",
    ),
    (
        "etc/security/limits.conf",
        "@⟦tradersgrp⟧ - memlock unlimited\n⟦joeuser⟧ hard rtprio 99\n# memlock ⟦limitcomment⟧\n",
    ),
    ("etc/tuned/active_profile", "realtime ⟦ghp_16C7e42F292c6912E7710c838347Ae178B4a⟧\n"),
    (
        "proc/version",
        "Linux version 5.14.0 (⟦joe@build7.corp.example⟧) (gcc 11.4.1) #1 SMP PREEMPT_RT Thu Jan 1 00:00:00 UTC 2026\n",
    ),
    (
        "proc/cpuinfo",
        "processor\t: 0\nmodel name\t: ARMv7\nHardware\t: BCM2835\nSerial\t\t: ⟦10000000abcdef01⟧\nmachine id\t: ⟦Z15-0042⟧\n",
    ),
    (
        "proc/swaps",
        "Filename\t\tType\tSize\tUsed\tPriority\n/home/⟦joesmith⟧/swap file 1 0 -2\n/dev/mapper/⟦acme-crypt⟧ partition 1 0 -3\n",
    ),
    (
        "proc/mounts",
        "/dev/mapper/⟦rootvol⟧ / ext4 rw 0 0\n/dev/⟦customervol⟧ /x ext4 rw 0 0\nnodev /srv/⟦projectx⟧/huge hugetlbfs rw,pagesize=1024M 0 0\n",
    ),
    ("proc/modules", "ice 1 0 - Live 0x⟦ffffffffc0a0beef⟧ (OE)\n"),
    (
        "boot/config-5.14.0",
        "CONFIG_HZ=250\nCONFIG_CMDLINE=\"quiet psk=⟦builtinpsk⟧\"\nCONFIG_MODULE_SIG_KEY=\"⟦certs/acme_key.pem⟧\"\n",
    ),
    ("proc/sys/kernel/osrelease", "5.14.0\n"),
    ("sys/kernel/tracing/kprobe_events", "p:kprobes/⟦probe_of_joe⟧ do_sys_open\n"),
    (
        "proc/interrupts",
        "            CPU0       CPU1\n 24:   1   2  PCI-MSI 524288-edge      enx⟦0a1b2c3d4e5f⟧-rx-0\n 25:   3   4  PCI-MSI 1-edge      lan⟦0a1b2c3d4e60⟧\n\
         26:   5   6  PCI-MSI 2-edge      ib⟦0002:c903:00ef:5a20⟧\n",
    ),
    ("sys/kernel/irq/24/actions", "mac⟦aa-bb-cc-00-11-22⟧\n"),
    ("sys/class/net/enx⟦0a1b2c3d4e5f⟧/mtu", "1500\n"),
    ("sys/class/net/enx⟦0a1b2c3d4e5f⟧/address", "⟦0a:1b:2c:3d:4e:5f⟧\n"),
    ("sys/class/net/ib0/mtu", "2044\n"),
    ("sys/class/net/ib0/address", "⟦80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:ef:5a:21⟧\n"),
    ("sys/class/dmi/id/product_serial", "⟦CN7792162A00B2⟧\n"),
    ("sys/class/dmi/id/product_uuid", "⟦4c4c4544-0051-3510-8052-b4c04f4d3232⟧\n"),
    ("sys/class/dmi/id/board_serial", "⟦.8FJ2KX3.CN779⟧\n"),
    ("sys/class/dmi/id/chassis_asset_tag", "⟦ASSET-00912⟧\n"),
    ("sys/class/dmi/id/product_name", "PowerEdge R640 ⟦192.0.2.77⟧\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n"),
    ("sys/fs/cgroup/kubepods.slice/kubepods-pod⟦7e1b3e4a_12ab_4d5e_8f60_99aabbccddee⟧.slice/cgroup.procs", "71\n"),
    (
        "sys/fs/cgroup/system.slice/docker-⟦4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a⟧.scope/cpuset.cpus",
        "2-3\n",
    ),
    ("sys/fs/cgroup/system.slice/openvpn@⟦clientacme⟧.service/cgroup.procs", "72\n"),
    ("etc/systemd/system/multi-user.target.wants/wg-quick@⟦wgtunnel9⟧.service", ""),
    ("etc/systemd/system/swap.target.wants/dev-disk-by\\x2duuid-⟦0badcafe\\x2d1111\\x2d2222⟧.swap", ""),
    ("etc/shadow", "root:⟦$6$saltsalt$hashhash⟧:1::::::\n"),
    ("proc/71/stat", "71 (irq/55-enx⟦0a1b2c3d⟧) S 1 71 71 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 5\n"),
];

/// What others may have put into the folders of a recording that hold no files of a host: no rule reads it.
const FOREIGN: &[(&str, &str)] = &[
    ("tasks/environ", "DB_PASSWORD=⟦foreignenv⟧\n"),
    ("tasks/cmdline", "psql --password ⟦foreigncmd⟧\n"),
    ("again/tasks/status", "Name:\tx\nKey:\t⟦foreignkey⟧\n"),
    ("msr/tpm", "⟦foreigntpm⟧\n"),
    ("msr/0xe2", "0 0x1\n1 ⟦foreignmsr⟧\n"),
    ("commands/env", "AWS_SECRET_ACCESS_KEY=⟦foreignaws⟧\n"),
    ("commands/kubectl_config_view_--raw", "client-key-data: ⟦foreignkube⟧\n"),
    ("commands/wg_showconf_wg0", "PrivateKey = ⟦foreignwg⟧\n"),
    ("commands/ethtool_-m_eth0", "\tVendor SN : ⟦AVD12345⟧\n"),
    ("commands/ethtool_-e_eth0", "0x0000:\t\t⟦00 1b 21 aa bb cc⟧\n"),
    ("commands/ethtool_eth0", "\tSpeed: 10Mb/s\n\tSecureOn password: ⟦0a:12:23:34:45:56⟧\n"),
    ("commands/ethtool_-u_eth0", "\tDest IP addr: ⟦198.51.100.9⟧\n"),
    ("commands/cpu_dma_latency_holders", "db --password ⟦foreignhold⟧\n"),
];

/// What commands print: of the recording for the program, of programs in PATH for the script.
const PRINTED: &[(&str, &str)] = &[
    (
        "dmesg",
        "[    0.000000] Command line: quiet psk=⟦dmesgpsk1⟧ systemd.setenv=DB_PASSWORD=⟦dmesgsetenv⟧ nohz_full=2-7 ⟦dmesgbare⟧ -- --password ⟦dmesgdash⟧\n\
         [    0.000000] Kernel command line: login=⟦dmesglogin⟧ isolcpus=2-7 serial=⟦dmesgserial⟧\n\
         [    0.010000] Unknown kernel command line parameters \"isolcpu=2 token=⟦dmesgtoken⟧ ⟦dmesgunknown⟧\", will be passed to user space.\n\
         [    1.000000] mlx5_core 0000:3b:00.0: tsc Port GUID: ⟦0x0002c90300ef5a22⟧ mac ⟦b8cef6aabbcc⟧ or ⟦b8ce.f6aa.bbcd⟧ or ⟦B8-CE-F6-AA-BB-CE⟧\n\
         [    2.000000] clocksource: server ⟦10.20.30.40⟧ and ⟦fe80::211:22ff:fe33:4455⟧ and ⟦2001:db8::1:2:3⟧ key=⟦dmesgkey⟧ tsc\n\
         [    3.000000] systemd[1]: Hostname set to ⟦dmesghost.corp⟧, nohz_full\n\
         [    4.000000] tsc: see https://⟦joe⟧:⟦dmesgurlpw⟧@h/ or ⟦joe@corp.example⟧ ⟦AKIAJ4567QWERTYUIOPA⟧\n\
         [    5.000000] tsc: ⟦snmpuser:authpw@10host.example⟧ ⟦root@3com.example⟧\n\
         [    6.000000] my daemon[71]: tsc CHAP ⟦chapsecret1⟧\n\
         <30>[    7.000000] radiusd: tsc shared ⟦radiussecret1⟧\n\
         <6>[    8.000000] wg[72]: tsc ⟦wireguardkey1⟧\n",
    ),
    (
        "dmidecode",
        "Handle 0x1100, DMI type 17, 84 bytes\nMemory Device\n\tSize: 32 GB\n\tLocator: A1\n\tManufacturer: X\n\tSerial Number: ⟦36AD1F2B⟧\n\
         \tAsset Tag: ⟦01184561⟧\n\tPart Number: ⟦M393A4K40CB2⟧\n",
    ),
    (
        "systemctl",
        "  irqbalance.service loaded active running ⟦described by joe⟧\n  wg-quick@⟦wgtunnel8⟧.service loaded active running x\n",
    ),
    (
        "ethtool",
        "1 RX rings available\nTotal 1 rules\n\nFilter: 1\n\tSrc IP addr: ⟦198.51.100.7⟧ mask: 0.0.0.0\n\tDest MAC addr: ⟦02:aa:bb:cc:dd:01⟧\n",
    ),
];

fn plain(text: &str) -> String {
    text.replace(['⟦', '⟧'], "")
}

fn secrets() -> Vec<String> {
    let texts = PLANTED
        .iter()
        .flat_map(|(path, text)| [*path, *text])
        .chain(PRINTED.iter().chain(FOREIGN).map(|(_, text)| *text));
    let mut all: Vec<String> =
        texts.flat_map(|text| text.split('⟦').skip(1).map(|rest| rest.split('⟧').next().unwrap().to_owned())).collect();
    all.sort();
    all.dedup();
    all
}

/// As it is, in other letters, without separators, and as tools for encoding write it.
fn forms(secret: &str) -> Vec<Vec<u8>> {
    let bare: String = secret.chars().filter(char::is_ascii_alphanumeric).collect();
    let mut forms = vec![secret.to_owned(), secret.to_lowercase(), secret.to_uppercase()];
    if bare.len() >= 12 {
        forms.push(bare);
    }
    forms.push(secret.bytes().map(|octet| format!("{octet:02x}")).collect());
    forms.push(secret.chars().rev().collect());
    forms.push(base64(secret.as_bytes()));
    forms.into_iter().map(String::into_bytes).collect()
}

/// RFC 4648, section 4, without the padding and the last, incomplete group.
fn base64(octets: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let bits = group.iter().fold(0_u32, |bits, octet| bits << 8 | u32::from(*octet));
        (0..4).rev().map(|place| DIGITS[(bits >> (6 * place) & 63) as usize] as char).collect::<String>()
    };
    octets.chunks_exact(3).map(group).collect()
}

fn is_clean(files: &[(String, Vec<u8>)]) {
    let secrets = secrets();
    assert!(secrets.len() >= 100, "{} secrets", secrets.len());
    let mut found = Vec::new();
    for secret in &secrets {
        for form in forms(secret) {
            let within = |octets: &[u8]| octets.windows(form.len()).any(|window| window == form);
            for (path, contents) in files {
                if within(path.as_bytes()) || within(contents) {
                    found.push(format!("{secret} in {path} as {}", String::from_utf8_lossy(&form)));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} of {} secrets:\n{}", found.len(), secrets.len(), found.join("\n"));
}

/// What an audit needs is there all the same.
fn is_useful(root: &Root) {
    let facts = host::facts::Facts::read(root);
    let line = facts.cmdline.value().unwrap();
    for (name, value) in [
        ("isolcpus", "managed_irq,domain,2-7"),
        ("nohz_full", "2-7"),
        ("tsc", "reliable"),
        ("console", "ttyS0,115200n8"),
        ("crashkernel", "512M"),
    ] {
        assert_eq!(line.value(name), Some(value));
    }
    let services = &facts.services;
    assert_eq!(services.irqbalance.value().unwrap()["IRQBALANCE_BANNED_CPULIST"], "2-7");
    assert_eq!(services.systemd_cpu_affinity.value().unwrap().to_string(), "0-1,40-41");
    assert_eq!(services.cpu_manager.value().unwrap().0, "static");
    assert_eq!(services.limits.value().unwrap().len(), 2);
    assert!(services.tuned_profile.value().unwrap().starts_with("realtime"));
    assert_eq!(facts.kernel.config.value().unwrap().get("HZ"), Some("250"));
    assert!(facts.kernel.messages.value().unwrap().iter().any(|line| line.contains("isolcpu")));
}

fn plant(place: &Scratch) {
    for (path, text) in PLANTED {
        place.write(plain(path), plain(text));
    }
}

/// The files of an archive.
fn unpacked(file: &Path) -> Vec<(String, Vec<u8>)> {
    let octets = fs::read(file).unwrap();
    let mut archive = tar::Archive::new(octets.as_slice());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut contents = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut contents).unwrap();
        (entry.path().unwrap().display().to_string(), contents)
    });
    entries.collect()
}

#[test]
fn none_is_in_a_snapshot_of_the_program() {
    let place = Scratch::new();
    plant(&place);
    for (tool, text) in PRINTED {
        let name = match *tool {
            "dmesg" => "dmesg",
            "dmidecode" => "dmidecode_-t_17",
            "systemctl" => "systemctl_list-units_--all",
            _ => "ethtool_-n_eth0",
        };
        place.write(format!("commands/{name}"), plain(text));
    }
    for (path, text) in FOREIGN {
        place.write(path, plain(text));
    }
    place.write("tasks/stat", "71 (login=⟦taskname1⟧) S 1 71 71 0 -1\n".replace(['⟦', '⟧'], ""));
    let snapshot = Snapshot::of(&Root::open(place.path()).unwrap(), Plan::default());
    let files: Vec<_> = snapshot.files().map(|(path, contents)| (path.to_owned(), contents.to_vec())).collect();
    is_clean(&files);
    assert!(!files.iter().any(|(_, contents)| String::from_utf8_lossy(contents).contains("taskname1")));
    let file = Scratch::new();
    snapshot.write(&file.join("host.tar")).unwrap();
    is_useful(&Root::open(file.join("host.tar")).unwrap());
}

#[test]
fn none_is_in_a_snapshot_of_the_script() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/apus-snapshot.sh");
    let place = Scratch::new();
    for (path, text) in PLANTED {
        place.write(format!("root/{}", plain(path)), plain(text));
    }
    for (tool, text) in PRINTED {
        place.write(format!("{tool}.txt"), plain(text));
        let only = if *tool == "ethtool" { "[ \"$1\" = -n ] || exit 1\n" } else { "" };
        let program = format!("#!/bin/sh\n{only}cat {}/{tool}.txt\n", place.path().display());
        testkit::put_script(&place.join(format!("bin/{tool}")), &program);
    }
    // `uname -r` names the file of the configuration.
    let uname = "#!/bin/sh\ncase $1 in -s) echo Linux;; -r) echo 5.14.0;; *) echo Linux h 5.14.0;; esac\n";
    testkit::put_script(&place.join("bin/uname"), uname);
    let path = format!("{}:{}", place.join("bin").display(), std::env::var("PATH").unwrap());
    // Where an archive of all may read stands already.
    let file = place.write("host.tar", "old");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let mut awks = vec![None];
    awks.extend(["mawk", "gawk"].map(Some).into_iter().filter(|awk| Path::new("/usr/bin").join(awk.unwrap()).exists()));
    for awk in awks {
        let link = place.join("bin/awk");
        let _ = fs::remove_file(&link);
        if let Some(awk) = awk {
            std::os::unix::fs::symlink(Path::new("/usr/bin").join(awk), &link).unwrap();
        }
        let mut command = Command::new("sh");
        command.arg(&script).args(["-t", "0", "-o"]).arg(&file).env("PATH", &path).env("APUS_ROOT", place.join("root"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !said.contains("awk"), "{said}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        is_clean(&unpacked(&file));
        is_useful(&Root::open(&file).unwrap());
    }
}

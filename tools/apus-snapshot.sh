#!/bin/sh
# Takes a host's state into one file, for `apus audit --from FILE` on another machine.
#
# Needs a shell, tar and what every POSIX system has; on Linux and FreeBSD. As root it sees more, and says
# what it could not see. It changes nothing, and takes no secret: what it reads is listed below, command
# lines lose the values of parameters that can hold a secret, and the kernel's messages are those that
# an audit looks at. MAC addresses and serial numbers are masked unless -u is given. It keeps away from CPUs
# that are isolated, and reads nothing that interrupts them.
#
#   sh apus-snapshot.sh [-o host.tar] [-t seconds between the two readings of the counters] [-u]
#
# With APUS_ROOT=FOLDER it takes the files of that folder instead of /'s.
set -u
LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/sbin:/sbin:/usr/bin:/bin
umask 077

out=apus-snapshot.tar
seconds=3
unmask=no
root=${APUS_ROOT:-}
while getopts o:t:uh option; do
    case $option in
    o) out=$OPTARG ;;
    t) seconds=$OPTARG ;;
    u) unmask=yes ;;
    *)
        echo "use: sh apus-snapshot.sh [-o host.tar] [-t seconds] [-u]" >&2
        exit 2
        ;;
    esac
done
case $seconds in
'' | *[!0-9]*)
    echo "error: -t takes whole seconds, not '$seconds'" >&2
    exit 2
    ;;
esac
case $out in
*.tar | *.tar.gz) ;;
*)
    echo "error: name the file .tar or .tar.gz, not '$out'" >&2
    exit 2
    ;;
esac

work=${TMPDIR:-/tmp}/apus-snapshot.$$
mkdir "$work" "$work/host" "$work/host/commands" || exit 3
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
host=$work/host
# After this many seconds no further group of files is read, and the snapshot says that it is cut short.
limit=120
start=$(date +%s)
complete=yes

has() { command -v "$1" >/dev/null 2>&1; }

in_time() {
    [ $(($(date +%s) - start)) -lt $limit ] && return 0
    complete=no
    return 1
}

# Command lines: values of names that can hold a secret, addresses and UUIDs. (sed -E: GNU, BSD and busybox.)
mask_cmdline() {
    sed -E -e 's/([^ ]*(auth|BOOTIF|bootif|cred|fqdn|gateway|hostname|ifname|iscsi|nameserver|netroot|nfsroot|pass|proxy|secret|token)[^ =]*)=("[^"]*"|[^ ]*)/\1=MASKED/g' \
        -e 's/([^ =]*(key|mac|uuid|pw|pwd))=("[^"]*"|[^ ]*)/\1=MASKED/g' -e 's/(^| )(ip|dns)=[^ ]*/\1\2=MASKED/g' \
        -e 's/=[^ ]*(:\/\/|UUID=|@)[^ ]*/=MASKED/g' -e 's/=[^ ]*[0-9]{1,3}(\.[0-9]{1,3}){3}[^ ]*/=MASKED/g'
}

# The serial number that boards of ARM print.
mask_cpuinfo() {
    if [ $unmask = yes ]; then cat; else sed -E 's/^(Serial[[:space:]]*:).*/\1 MASKED/'; fi
}

mask_addresses() {
    sed -E -e 's/[0-9]{1,3}(\.[0-9]{1,3}){3}/MASKED/g' -e 's/[0-9a-f]{1,4}(:[0-9a-f]{1,4}){0,6}::[0-9a-f:]*/MASKED/g' \
        -e 's/[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}/MASKED/g'
}

mask_macs() {
    if [ $unmask = yes ]; then
        cat
    else
        sed -E -e 's/(^|[^0-9a-fA-F:])([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}([^0-9a-fA-F:]|$)/\1xx:xx:xx:xx:xx:xx\3/g' \
            -e 's/enx[0-9a-fA-F]{9}([0-9a-fA-F]{3})/enxmasked\1/g'
    fi
}

# Puts standard input into a file of the snapshot, at most 64 MB of it.
put() {
    mkdir -p "$host/${1%/*}" && head -c 67108864 2>/dev/null | mask_macs >"$host/$1"
}

# The output of a command, errors too: they say why there is none. Of one that is not here, nothing.
run() {
    has "$1" || return 0
    name=$(printf '%s' "$*" | sed 's/[^A-Za-z0-9_.-][^A-Za-z0-9_.-]*/_/g')
    "$@" 2>&1 </dev/null | put "${place:-}commands/$name"
}

messages='aer:|aspm|clocksource|correctable error|cpuidle|ddp package|disabling irq|dynticks|edac|firmware bug|hardware error|hpet|hung_task|hwlat|hypervisor detected|intel_idle|intel_pstate|interrupt took too long|isolcpus|link is down|mce:|microcode|nmi handler|no_hz|nobody cared|nohz_full|nvm image|offload rcu callbacks|pcie bandwidth|perf:|rcu: info|rcu_sched|recovery mode|soft lockup|sr-iov|temperature|throttl|tsc|unknown kernel command line|vt-d|workqueue:'

finish() {
    {
        echo "apus-snapshot 1"
        echo "os: $(uname -s)"
        echo "taken: $(date -u +%Y-%m-%dT%H:%M:%SZ)"
        echo "by: apus-snapshot.sh 1"
        [ $unmask = yes ] && echo "masked: no" || echo "masked: yes"
        echo "complete: $complete"
        [ -f "$work/looked" ] && sed 's/^/looked: /' "$work/looked"
    } >"$host/apus-snapshot"
    case $out in
    *.gz) (cd "$host" && tar -cf - .) | gzip -c >"$out" ;;
    *) (cd "$host" && tar -cf - .) >"$out" ;;
    esac || exit 3
    echo "$out: $(wc -c <"$out" | tr -d ' ') octets; complete: $complete" >&2
}

# FreeBSD: what is asked for is the output of its tools.

freebsd_counters() {
    run vmstat -i
    run netstat -Q
    sysctl hw.intrcnt dev.cpu 2>/dev/null | grep cx_usage | put "${place}commands/cx_usage"
}

freebsd() {
    run uname -a
    run uname -r
    # Parts of the tree that hold no names, addresses and serial numbers of the owner.
    sysctl hw dev net.iflib net.isr net.inet.tcp net.inet.udp kern.clockrate kern.eventtimer kern.hz kern.ipc \
        kern.osreldate kern.ostype kern.sched kern.smp kern.timecounter kern.features vm.stats machdep 2>/dev/null |
        grep -v -i -E 'serial|uuid|hostname|macaddr|%desc: .*serial|dumpdev' | put commands/sysctl_-a
    for file in boot/loader.conf boot/loader.conf.local etc/sysctl.conf etc/sysctl.conf.local; do
        [ -r "$root/$file" ] && grep -v -i -E 'pass|secret|key|geli' "$root/$file" | put "$file"
    done
    for file in etc/rc.conf etc/rc.conf.local; do
        [ -r "$root/$file" ] && grep -E '^(powerd|performance|economy|ntpd|ix|ixl|ice|mlx|ifconfig_(ix|ixl|ice|mce|mlx|cxl|igb|em|bnxt)|devctl|cpuset)[A-Za-z0-9_]*=' "$root/$file" |
            mask_addresses | put "$file"
    done
    ifconfig -a 2>/dev/null | grep -v -E '^[[:space:]]*(ether|hwaddr|inet|inet6|lladdr|groups|nd6|tunnel|ssid)' | put commands/ifconfig_-a
    run pciconf -l
    has top && top -bSHP 200 2>/dev/null </dev/null | grep -E 'intr|kernel|idle|swi' | put commands/top_-bSH
    for irq in $(vmstat -i 2>/dev/null | sed -n 's/^irq\([0-9]*\):.*/\1/p'); do
        cpuset -g -x "$irq" 2>/dev/null
    done | put commands/cpuset_-g_-x
    dmesg 2>/dev/null | grep -i -E "$messages|ixl|ix[0-9]|interrupt storm" | mask_addresses | put commands/dmesg
    freebsd_counters
    sleep "$seconds"
    place=again/
    freebsd_counters
}

if [ "$(uname -s)" = FreeBSD ]; then
    place=
    freebsd
    finish
    exit 0
fi

# Linux: the files of the list. Each line says when, how, and which: see crates/host/src/snapshot/paths.rs.
list() {
    cat <<'LIST'
# CPUs
once lines sys/devices/system/cpu/present
once lines sys/devices/system/cpu/online
once lines sys/devices/system/cpu/possible
once lines sys/devices/system/cpu/isolated
once lines sys/devices/system/cpu/nohz_full
once lines sys/devices/system/cpu/smt/active
once lines sys/devices/system/cpu/smt/control
once lines sys/devices/system/cpu/vulnerabilities/*
once lines sys/devices/system/cpu/cpu*/online
once lines sys/devices/system/cpu/cpu*/topology/physical_package_id
once lines sys/devices/system/cpu/cpu*/topology/die_id
once lines sys/devices/system/cpu/cpu*/topology/core_id
once lines sys/devices/system/cpu/cpu*/topology/thread_siblings_list
once lines sys/devices/system/cpu/cpu*/topology/core_cpus_list
once lines sys/devices/system/cpu/cpu*/cache/index3/shared_cpu_list
once lines sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us
once register sys/devices/system/cpu/cpu*/power/energy_perf_bias
once lines sys/devices/system/machinecheck/machinecheck*/ignore_ce
once lines sys/devices/system/machinecheck/machinecheck*/check_interval
once cpuinfo proc/cpuinfo
# Idle states
once lines sys/devices/system/cpu/cpuidle/current_driver
once lines sys/devices/system/cpu/cpuidle/current_governor
once lines sys/devices/system/cpu/cpuidle/current_governor_ro
once lines sys/devices/system/cpu/cpuidle/available_governors
once lines sys/devices/system/cpu/umwait_control/enable_c02
once lines sys/devices/system/cpu/umwait_control/max_time
once lines sys/devices/system/cpu/cpu*/cpuidle/state*/name
once lines sys/devices/system/cpu/cpu*/cpuidle/state*/desc
once lines sys/devices/system/cpu/cpu*/cpuidle/state*/latency
once lines sys/devices/system/cpu/cpu*/cpuidle/state*/residency
once lines sys/devices/system/cpu/cpu*/cpuidle/state*/disable
twice lines sys/devices/system/cpu/cpu*/cpuidle/state*/usage
twice lines sys/devices/system/cpu/cpu*/cpuidle/state*/time
twice lines sys/devices/system/cpu/cpu*/cpuidle/state*/above
twice lines sys/devices/system/cpu/cpu*/cpuidle/state*/below
twice lines sys/devices/system/cpu/cpu*/cpuidle/state*/rejected
twice lines sys/devices/system/cpu/cpu*/thermal_throttle/core_throttle_count
twice lines sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_count
# Frequencies
once lines sys/devices/system/cpu/intel_pstate/status
once lines sys/devices/system/cpu/intel_pstate/no_turbo
once lines sys/devices/system/cpu/intel_pstate/min_perf_pct
once lines sys/devices/system/cpu/intel_pstate/max_perf_pct
once lines sys/devices/system/cpu/intel_pstate/hwp_dynamic_boost
once lines sys/devices/system/cpu/amd_pstate/status
once lines sys/devices/system/cpu/cpufreq/boost
once lines sys/firmware/acpi/platform_profile
once lines sys/devices/system/cpu/cpufreq/policy*/affected_cpus
once lines sys/devices/system/cpu/cpufreq/policy*/scaling_driver
once lines sys/devices/system/cpu/cpufreq/policy*/scaling_governor
once lines sys/devices/system/cpu/cpufreq/policy*/scaling_min_freq
once lines sys/devices/system/cpu/cpufreq/policy*/scaling_max_freq
once lines sys/devices/system/cpu/cpufreq/policy*/cpuinfo_min_freq
once lines sys/devices/system/cpu/cpufreq/policy*/cpuinfo_max_freq
once lines sys/devices/system/cpu/cpufreq/policy*/cpuinfo_transition_latency
once register sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq
once register sys/devices/system/cpu/cpufreq/policy*/base_frequency
once register sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference
once lines sys/devices/system/cpu/intel_uncore_frequency/*/package_id
once lines sys/devices/system/cpu/intel_uncore_frequency/*/domain_id
once lines sys/devices/system/cpu/intel_uncore_frequency/*/initial_min_freq_khz
once lines sys/devices/system/cpu/intel_uncore_frequency/*/initial_max_freq_khz
once lines sys/devices/system/cpu/intel_uncore_frequency/*/elc_floor_freq_khz
once lines sys/devices/system/cpu/intel_uncore_frequency/*/elc_low_threshold_percent
once lines sys/devices/system/cpu/intel_uncore_frequency/*/elc_high_threshold_percent
once lines sys/devices/system/cpu/intel_uncore_frequency/*/elc_high_threshold_enable
once register sys/devices/system/cpu/intel_uncore_frequency/*/min_freq_khz
once register sys/devices/system/cpu/intel_uncore_frequency/*/max_freq_khz
once register sys/devices/system/cpu/intel_uncore_frequency/*/current_freq_khz
once lines sys/class/powercap/intel-rapl:*/name
once lines sys/class/powercap/intel-rapl:*/constraint_*_name
once register sys/class/powercap/intel-rapl:*/enabled
once register sys/class/powercap/intel-rapl:*/constraint_*_power_limit_uw
once register sys/class/powercap/intel-rapl:*/constraint_*_max_power_uw
once register sys/class/powercap/intel-rapl:*/constraint_*_time_window_us
# Interrupts
twice whole proc/interrupts
twice whole proc/softirqs
once lines proc/irq/default_smp_affinity
once lines proc/irq/*/smp_affinity_list
once lines proc/irq/*/effective_affinity_list
once lines proc/irq/*/node
once lines sys/kernel/irq/*/actions
once lines sys/kernel/irq/*/chip_name
once lines sys/kernel/debug/irq/irqs/*
# Time
twice lines proc/uptime
once lines sys/devices/system/clocksource/clocksource0/current_clocksource
once lines sys/devices/system/clocksource/clocksource0/available_clocksource
# The kernel
once cmdline proc/cmdline
once lines proc/version
once lines proc/sys/kernel/osrelease
once lines proc/sys/kernel/version
once lines sys/kernel/realtime
once lines sys/kernel/kexec_crash_loaded
once whole proc/modules
once whole proc/config.gz
once whole boot/config-RELEASE
once loader boot/loader/entries/*.conf
once loader etc/default/grub
once lines sys/kernel/tracing/current_tracer
once lines sys/kernel/tracing/tracing_on
once lines sys/kernel/tracing/set_event
once lines sys/kernel/tracing/kprobe_events
once lines sys/kernel/debug/tracing/current_tracer
once lines sys/kernel/debug/tracing/tracing_on
once lines sys/kernel/debug/tracing/set_event
once lines sys/kernel/debug/tracing/kprobe_events
once lines sys/kernel/debug/sched/preempt
once lines sys/kernel/debug/sched/fair_server/cpu*/runtime
# Parameters of modules
once lines sys/module/haltpoll/parameters/guest_halt_poll_allow_shrink
once lines sys/module/haltpoll/parameters/guest_halt_poll_grow
once lines sys/module/haltpoll/parameters/guest_halt_poll_grow_start
once lines sys/module/haltpoll/parameters/guest_halt_poll_ns
once lines sys/module/haltpoll/parameters/guest_halt_poll_shrink
once lines sys/module/intel_idle/parameters/max_cstate
once lines sys/module/kvm/parameters/halt_poll_ns
once lines sys/module/kvm/parameters/halt_poll_ns_grow
once lines sys/module/kvm/parameters/halt_poll_ns_grow_start
once lines sys/module/kvm/parameters/halt_poll_ns_shrink
once lines sys/module/kvm/parameters/kvmclock_periodic_sync
once lines sys/module/kvm/parameters/nx_huge_pages
once lines sys/module/kvm_amd/parameters/avic
once lines sys/module/kvm_intel/parameters/enable_apicv
once lines sys/module/kvm_intel/parameters/ple_gap
once lines sys/module/kvm_intel/parameters/ple_window
once lines sys/module/pcie_aspm/parameters/policy
once lines sys/module/processor/parameters/max_cstate
once lines sys/module/rcupdate/parameters/rcu_expedited
once lines sys/module/rcupdate/parameters/rcu_normal
once lines sys/module/rcupdate/parameters/rcu_normal_after_boot
once lines sys/module/rcutree/parameters/kthread_prio
once lines sys/module/rcutree/parameters/nohz_full_patience_delay
once lines sys/module/usbcore/parameters/autosuspend
once lines sys/module/vfio_pci/parameters/disable_idle_d3
once lines sys/module/workqueue/parameters/power_efficient
# Values under /proc/sys
once lines proc/sys/kernel/dmesg_restrict
once lines proc/sys/kernel/hung_task_timeout_secs
once lines proc/sys/kernel/io_uring_disabled
once lines proc/sys/kernel/nmi_watchdog
once lines proc/sys/kernel/numa_balancing
once lines proc/sys/kernel/panic
once lines proc/sys/kernel/perf_cpu_time_max_percent
once lines proc/sys/kernel/perf_event_paranoid
once lines proc/sys/kernel/printk
once lines proc/sys/kernel/sched_autogroup_enabled
once lines proc/sys/kernel/sched_latency_ns
once lines proc/sys/kernel/sched_migration_cost_ns
once lines proc/sys/kernel/sched_min_granularity_ns
once lines proc/sys/kernel/sched_rr_timeslice_ms
once lines proc/sys/kernel/sched_rt_period_us
once lines proc/sys/kernel/sched_rt_runtime_us
once lines proc/sys/kernel/sched_schedstats
once lines proc/sys/kernel/sched_wakeup_granularity_ns
once lines proc/sys/kernel/soft_watchdog
once lines proc/sys/kernel/softlockup_panic
once lines proc/sys/kernel/timer_migration
once lines proc/sys/kernel/watchdog
once lines proc/sys/kernel/watchdog_cpumask
once lines proc/sys/kernel/watchdog_thresh
once lines proc/sys/net/core/bpf_jit_enable
once lines proc/sys/net/core/bpf_jit_harden
once lines proc/sys/net/core/busy_poll
once lines proc/sys/net/core/busy_read
once lines proc/sys/net/core/default_qdisc
once lines proc/sys/net/core/dev_weight
once lines proc/sys/net/core/flow_limit_cpu_bitmap
once lines proc/sys/net/core/gro_normal_batch
once lines proc/sys/net/core/netdev_budget
once lines proc/sys/net/core/netdev_budget_usecs
once lines proc/sys/net/core/netdev_max_backlog
once lines proc/sys/net/core/netdev_tstamp_prequeue
once lines proc/sys/net/core/rmem_default
once lines proc/sys/net/core/rmem_max
once lines proc/sys/net/core/rps_default_mask
once lines proc/sys/net/core/rps_sock_flow_entries
once lines proc/sys/net/core/skb_defer_max
once lines proc/sys/net/core/somaxconn
once lines proc/sys/net/core/wmem_default
once lines proc/sys/net/core/wmem_max
once lines proc/sys/net/ipv4/tcp_autocorking
once lines proc/sys/net/ipv4/tcp_congestion_control
once lines proc/sys/net/ipv4/tcp_fastopen
once lines proc/sys/net/ipv4/tcp_limit_output_bytes
once lines proc/sys/net/ipv4/tcp_low_latency
once lines proc/sys/net/ipv4/tcp_rmem
once lines proc/sys/net/ipv4/tcp_sack
once lines proc/sys/net/ipv4/tcp_slow_start_after_idle
once lines proc/sys/net/ipv4/tcp_thin_linear_timeouts
once lines proc/sys/net/ipv4/tcp_timestamps
once lines proc/sys/net/ipv4/tcp_wmem
once lines proc/sys/net/ipv4/udp_mem
once lines proc/sys/net/ipv4/udp_rmem_min
once lines proc/sys/net/netfilter/nf_conntrack_count
once lines proc/sys/net/netfilter/nf_conntrack_max
once lines proc/sys/vm/compaction_proactiveness
once lines proc/sys/vm/dirty_background_bytes
once lines proc/sys/vm/dirty_background_ratio
once lines proc/sys/vm/dirty_bytes
once lines proc/sys/vm/dirty_ratio
once lines proc/sys/vm/dirty_writeback_centisecs
once lines proc/sys/vm/max_map_count
once lines proc/sys/vm/min_free_kbytes
once lines proc/sys/vm/nr_hugepages
once lines proc/sys/vm/overcommit_memory
once lines proc/sys/vm/stat_interval
once lines proc/sys/vm/swappiness
once lines proc/sys/vm/vfs_cache_pressure
once lines proc/sys/vm/zone_reclaim_mode
# Workqueues and control groups
once lines sys/devices/virtual/workqueue/cpumask
once lines sys/devices/virtual/workqueue/cpumask_requested
once lines sys/devices/virtual/workqueue/cpumask_isolated
once lines sys/devices/virtual/workqueue/*/cpumask
once lines sys/bus/workqueue/devices/writeback/cpumask
once unified sys/fs/cgroup/cpuset.cpus
once unified sys/fs/cgroup/cpuset.cpus.effective
once unified sys/fs/cgroup/cpuset.cpus.exclusive
once unified sys/fs/cgroup/cpuset.cpus.isolated
once unified sys/fs/cgroup/cpuset.cpus.partition
once unified sys/fs/cgroup/cpuset.mems
once unified sys/fs/cgroup/cpu.max
once unified sys/fs/cgroup/cpu.stat
once unified sys/fs/cgroup/cgroup.procs
once unified sys/fs/cgroup/*/cpuset.cpus
once unified sys/fs/cgroup/*/cpuset.cpus.effective
once unified sys/fs/cgroup/*/cpuset.cpus.exclusive
once unified sys/fs/cgroup/*/cpuset.cpus.isolated
once unified sys/fs/cgroup/*/cpuset.cpus.partition
once unified sys/fs/cgroup/*/cpuset.mems
once unified sys/fs/cgroup/*/cpu.max
once unified sys/fs/cgroup/*/cpu.stat
once unified sys/fs/cgroup/*/cgroup.procs
once unified sys/fs/cgroup/*/*/cpuset.cpus
once unified sys/fs/cgroup/*/*/cpuset.cpus.effective
once unified sys/fs/cgroup/*/*/cpuset.cpus.exclusive
once unified sys/fs/cgroup/*/*/cpuset.cpus.isolated
once unified sys/fs/cgroup/*/*/cpuset.cpus.partition
once unified sys/fs/cgroup/*/*/cpuset.mems
once unified sys/fs/cgroup/*/*/cpu.max
once unified sys/fs/cgroup/*/*/cpu.stat
once unified sys/fs/cgroup/*/*/cgroup.procs
once unified sys/fs/cgroup/*/*/*/cpuset.cpus
once unified sys/fs/cgroup/*/*/*/cpuset.cpus.effective
once unified sys/fs/cgroup/*/*/*/cpuset.cpus.exclusive
once unified sys/fs/cgroup/*/*/*/cpuset.cpus.isolated
once unified sys/fs/cgroup/*/*/*/cpuset.cpus.partition
once unified sys/fs/cgroup/*/*/*/cpuset.mems
once unified sys/fs/cgroup/*/*/*/cpu.max
once unified sys/fs/cgroup/*/*/*/cpu.stat
once unified sys/fs/cgroup/*/*/*/cgroup.procs
once unified sys/fs/cgroup/*/*/*/*/cpuset.cpus
once unified sys/fs/cgroup/*/*/*/*/cpuset.cpus.effective
once unified sys/fs/cgroup/*/*/*/*/cpuset.cpus.exclusive
once unified sys/fs/cgroup/*/*/*/*/cpuset.cpus.isolated
once unified sys/fs/cgroup/*/*/*/*/cpuset.cpus.partition
once unified sys/fs/cgroup/*/*/*/*/cpuset.mems
once unified sys/fs/cgroup/*/*/*/*/cpu.max
once unified sys/fs/cgroup/*/*/*/*/cpu.stat
once unified sys/fs/cgroup/*/*/*/*/cgroup.procs
once unified sys/fs/cgroup/*/*/*/*/*/cpuset.cpus
once unified sys/fs/cgroup/*/*/*/*/*/cpuset.cpus.effective
once unified sys/fs/cgroup/*/*/*/*/*/cpuset.cpus.exclusive
once unified sys/fs/cgroup/*/*/*/*/*/cpuset.cpus.isolated
once unified sys/fs/cgroup/*/*/*/*/*/cpuset.cpus.partition
once unified sys/fs/cgroup/*/*/*/*/*/cpuset.mems
once unified sys/fs/cgroup/*/*/*/*/*/cpu.max
once unified sys/fs/cgroup/*/*/*/*/*/cpu.stat
once unified sys/fs/cgroup/*/*/*/*/*/cgroup.procs
once lines sys/fs/cgroup/cgroup.controllers
once lines sys/fs/cgroup/systemd/system.slice/*/cgroup.procs
once lines sys/fs/cgroup/cpuset/cpuset.cpus
once lines sys/fs/cgroup/cpuset/cpuset.effective_cpus
once lines sys/fs/cgroup/cpuset/cpuset.mems
once lines sys/fs/cgroup/cpuset/cpuset.sched_load_balance
once lines sys/fs/cgroup/cpuset/cgroup.procs
once lines sys/fs/cgroup/cpu/cpu.cfs_quota_us
once lines sys/fs/cgroup/cpu/cpu.cfs_period_us
once lines sys/fs/cgroup/cpu/cpu.stat
once lines sys/fs/cgroup/cpuset/*/cpuset.cpus
once lines sys/fs/cgroup/cpuset/*/cpuset.effective_cpus
once lines sys/fs/cgroup/cpuset/*/cpuset.mems
once lines sys/fs/cgroup/cpuset/*/cpuset.sched_load_balance
once lines sys/fs/cgroup/cpuset/*/cgroup.procs
once lines sys/fs/cgroup/cpu/*/cpu.cfs_quota_us
once lines sys/fs/cgroup/cpu/*/cpu.cfs_period_us
once lines sys/fs/cgroup/cpu/*/cpu.stat
once lines sys/fs/cgroup/cpuset/*/*/cpuset.cpus
once lines sys/fs/cgroup/cpuset/*/*/cpuset.effective_cpus
once lines sys/fs/cgroup/cpuset/*/*/cpuset.mems
once lines sys/fs/cgroup/cpuset/*/*/cpuset.sched_load_balance
once lines sys/fs/cgroup/cpuset/*/*/cgroup.procs
once lines sys/fs/cgroup/cpu/*/*/cpu.cfs_quota_us
once lines sys/fs/cgroup/cpu/*/*/cpu.cfs_period_us
once lines sys/fs/cgroup/cpu/*/*/cpu.stat
once lines sys/fs/cgroup/cpuset/*/*/*/cpuset.cpus
once lines sys/fs/cgroup/cpuset/*/*/*/cpuset.effective_cpus
once lines sys/fs/cgroup/cpuset/*/*/*/cpuset.mems
once lines sys/fs/cgroup/cpuset/*/*/*/cpuset.sched_load_balance
once lines sys/fs/cgroup/cpuset/*/*/*/cgroup.procs
once lines sys/fs/cgroup/cpu/*/*/*/cpu.cfs_quota_us
once lines sys/fs/cgroup/cpu/*/*/*/cpu.cfs_period_us
once lines sys/fs/cgroup/cpu/*/*/*/cpu.stat
once lines sys/fs/cgroup/cpuset/*/*/*/*/cpuset.cpus
once lines sys/fs/cgroup/cpuset/*/*/*/*/cpuset.effective_cpus
once lines sys/fs/cgroup/cpuset/*/*/*/*/cpuset.mems
once lines sys/fs/cgroup/cpuset/*/*/*/*/cpuset.sched_load_balance
once lines sys/fs/cgroup/cpuset/*/*/*/*/cgroup.procs
once lines sys/fs/cgroup/cpu/*/*/*/*/cpu.cfs_quota_us
once lines sys/fs/cgroup/cpu/*/*/*/*/cpu.cfs_period_us
once lines sys/fs/cgroup/cpu/*/*/*/*/cpu.stat
# Memory
once lines sys/devices/system/node/node*/cpulist
once lines sys/devices/system/node/node*/distance
once lines sys/devices/system/node/node*/meminfo
once lines sys/devices/system/node/node*/hugepages/*/nr_hugepages
once lines sys/devices/system/node/node*/hugepages/*/free_hugepages
once lines sys/devices/system/node/node*/hugepages/*/surplus_hugepages
once lines sys/kernel/mm/hugepages/*/nr_hugepages
once lines sys/kernel/mm/hugepages/*/free_hugepages
once lines sys/kernel/mm/hugepages/*/surplus_hugepages
once lines sys/kernel/mm/transparent_hugepage/enabled
once lines sys/kernel/mm/transparent_hugepage/defrag
once lines sys/kernel/mm/transparent_hugepage/khugepaged/defrag
once lines sys/kernel/mm/ksm/run
once lines sys/kernel/mm/ksm/pages_shared
once lines proc/meminfo
once lines proc/swaps
once mounts proc/mounts
twice lines sys/devices/system/edac/mc/mc*/ce_count
once lines sys/devices/system/edac/mc/mc*/sdram_scrub_rate
# Counters
twice lines proc/stat
twice lines proc/vmstat
twice lines proc/net/softnet_stat
twice lines proc/net/snmp
twice lines proc/net/netstat
# PCI
once lines sys/bus/pci/devices/*/vendor
once lines sys/bus/pci/devices/*/device
once lines sys/bus/pci/devices/*/class
once lines sys/bus/pci/devices/*/numa_node
once lines sys/bus/pci/devices/*/local_cpulist
once lines sys/bus/pci/devices/*/current_link_speed
once lines sys/bus/pci/devices/*/max_link_speed
once lines sys/bus/pci/devices/*/current_link_width
once lines sys/bus/pci/devices/*/max_link_width
once lines sys/bus/pci/devices/*/link/*
once lines sys/bus/pci/devices/*/power/control
once lines sys/bus/pci/devices/*/d3cold_allowed
once lines sys/bus/pci/devices/*/msi_irqs/*
once lines sys/bus/pci/devices/*/sriov_numvfs
once lines sys/bus/pci/devices/*/sriov_totalvfs
once lines sys/bus/pci/devices/*/aer_dev_correctable
once lines sys/bus/pci/devices/*/aer_dev_nonfatal
once lines sys/bus/pci/devices/*/aer_dev_fatal
once lines sys/bus/pci/devices/*/net/*/mtu
once config sys/bus/pci/devices/*/config
once link sys/bus/pci/devices/*
once link sys/bus/pci/devices/*/driver
once link sys/bus/pci/devices/*/physfn
once link sys/bus/pci/devices/*/iommu_group
once lines sys/module/pcie_aspm/parameters/policy
once lines sys/kernel/iommu_groups/*/type
# Network interfaces
once lines sys/class/net/*/ifindex
once lines sys/class/net/*/mtu
once lines sys/class/net/*/type
once lines sys/class/net/*/tx_queue_len
once lines sys/class/net/*/operstate
once lines sys/class/net/*/carrier
once lines sys/class/net/*/carrier_changes
once lines sys/class/net/*/speed
once lines sys/class/net/*/duplex
once lines sys/class/net/*/napi_defer_hard_irqs
once lines sys/class/net/*/gro_flush_timeout
once lines sys/class/net/*/threaded
once lines sys/class/net/*/device/numa_node
once lines sys/class/net/*/queues/rx-*/rps_cpus
once lines sys/class/net/*/queues/rx-*/rps_flow_cnt
once lines sys/class/net/*/queues/tx-*/xps_cpus
twice lines sys/class/net/*/statistics/*
once link sys/class/net/*
once link sys/class/net/*/device
once link sys/class/net/*/device/driver
once unmasked sys/class/net/*/address
# Firmware and virtualisation
once lines sys/class/dmi/id/sys_vendor
once lines sys/class/dmi/id/product_name
once lines sys/class/dmi/id/product_family
once lines sys/class/dmi/id/board_name
once lines sys/class/dmi/id/bios_vendor
once lines sys/class/dmi/id/bios_version
once lines sys/class/dmi/id/bios_date
once lines sys/class/dmi/id/chassis_type
once unmasked sys/class/dmi/id/product_serial
once lines sys/hypervisor/type
once lines sys/devices/virtual/misc/kvm/dev
once lines sys/bus/virtio/devices/*/device
once link sys/bus/virtio/devices/*/driver
# Cache allocation
once lines sys/fs/resctrl/schemata
once lines sys/fs/resctrl/cpus_list
once lines sys/fs/resctrl/*/schemata
once lines sys/fs/resctrl/*/cpus_list
once lines sys/fs/resctrl/info/L3/cbm_mask
once lines sys/fs/resctrl/info/L3/shareable_bits
once lines sys/fs/resctrl/info/L3/num_closids
# Services
once lines etc/sysconfig/irqbalance
once lines etc/default/irqbalance
once lines etc/tuned/active_profile
once lines etc/systemd/system.conf
once lines etc/systemd/system.conf.d/*.conf
once names etc/systemd/system/*.wants/*
once names etc/systemd/system/*.requires/*
once plain etc/kubernetes/kubelet.conf
once plain var/lib/kubelet/config.yaml
once cpumanager var/lib/kubelet/cpu_manager_state
once limits etc/security/limits.conf
once limits etc/security/limits.d/*
LIST
}

# CPUs of a list such as 2-4,8 one by one.
cpus() {
    echo "$1" | tr ',' '\n' | while IFS=- read -r first last; do
        case $first in '' | *[!0-9]*) continue ;; esac
        last=${last:-$first}
        case $last in *[!0-9]*) continue ;; esac
        while [ "$first" -le "$last" ] && [ "$first" -lt 8192 ]; do
            printf '%s ' "$first"
            first=$((first + 1))
        done
    done
}

cpu_dir=$root/sys/devices/system/cpu
of_cmdline() { tr ' ' '\n' 2>/dev/null <"$root/proc/cmdline" | sed -n "s/^$1=//p" | sed 's/^[a-z_,]*,//'; }
isolated=" $(for set in "$(cat "$cpu_dir/isolated" 2>/dev/null)" "$(cat "$cpu_dir/nohz_full" 2>/dev/null)" \
    "$(cat "$root/sys/fs/cgroup/cpuset.cpus.isolated" 2>/dev/null)" "$(of_cmdline isolcpus)" "$(of_cmdline nohz_full)"; do
    cpus "$set"
done | tr ' ' '\n' | sort -un | tr '\n' ' ')"
isolated=$(echo "$isolated" | sed 's/^ *$//')

# Stay off the isolated CPUs, if there is a tool for it.
if [ -n "$isolated" ] && has taskset; then
    housekeeping=
    for cpu in $(cpus "$(cat "$cpu_dir/online")"); do
        case " $isolated " in *" $cpu "*) ;; *) housekeeping=$housekeeping,$cpu ;; esac
    done
    [ -n "$housekeeping" ] && taskset -pc "${housekeeping#,}" $$ >/dev/null 2>&1
fi

# Would reading this file interrupt an isolated CPU?
disturbs() {
    [ -n "$isolated" ] || return 1
    case $1 in
    */cpu/cpu[0-9]*) cpu=${1#*/cpu/cpu} ;;
    */policy[0-9]*) cpu=${1#*/policy} ;;
    # What is not of one CPU is of a package, whose first CPU is asked: any may be a wrong one.
    *) return 0 ;;
    esac
    cpu=${cpu%%/*}
    case " $isolated " in *" $cpu "*) return 0 ;; esac
    return 1
}

# Opening /proc/cpuinfo of Linux 4.13 to 5.17 interrupts busy CPUs that are not in nohz_full.
cpuinfo_disturbs() {
    [ -n "$isolated" ] || return 1
    full=" $(cpus "$(cat "$cpu_dir/nohz_full" 2>/dev/null)")"
    for cpu in $isolated; do
        case $full in *" $cpu "*) ;; *)
            release=$(uname -r)
            major=${release%%.*}
            minor=${release#*.}
            minor=${minor%%[!0-9]*}
            [ "$major" -eq 4 ] && [ "$minor" -ge 13 ] && return 0
            [ "$major" -eq 5 ] && [ "$minor" -lt 18 ] && return 0
            return 1
            ;;
        esac
    done
    return 1
}

# The texts of the files named on standard input, as path:line, in as few processes as there can be.
read_lines() {
    mkdir -p "$host/${1}bundle"
    paths=$work/paths
    sort -u >"$paths"
    while read -r path; do
        [ -r "$root$path" ] || echo "/$1${path#/}"
    done <"$paths" >>"$host/denied"
    # The second file makes grep write names even for one.
    sed "s|^|$root|" "$paths" | xargs grep -s '' /dev/null | sed "s|^$root/|/|" | head -c 67108864 | mask_macs >>"$host/${1}bundle/lines"
    mask_macs <"$paths" >>"$host/${1}bundle/paths"
}

# Files that a pattern means, and that are there.
expand() {
    (
        cd "$root/" || exit
        for path in $1; do
            [ -e "$path" ] && [ ! -d "$path" ] && echo "/$path"
        done
    )
}

take() {
    when=$1
    place=$2
    release=$(uname -r)
    # Of control groups, the patterns of the hierarchy that is mounted.
    texts=lines
    [ -e "$root/sys/fs/cgroup/cgroup.controllers" ] && texts='(lines|unified)'
    list | grep -E "^$when $texts " | while read -r _ _ pattern; do
        echo "$pattern" >>"$work/looked"
        expand "$pattern"
    done | read_lines "$place"
    in_time || return
    list | grep "^$when " | grep -v -E "^$when (lines|unified) " | while read -r _ how pattern; do
        [ "$how" = unmasked ] && [ $unmask = no ] && continue
        pattern=$(echo "$pattern" | sed "s/RELEASE/$release/")
        echo "$pattern" >>"$work/looked"
        if [ "$how" = link ]; then
            (cd "$root/" && for path in $pattern; do [ -h "$path" ] && echo "$path"; done) | sed "s|^|$root/|" |
                xargs ls -ld 2>/dev/null | sed "s| $root/| /|" | grep ' -> ' | mask_macs >>"$host/bundle/links"
            continue
        fi
        for path in $(expand "$pattern"); do
            file=${path#/}
            case $how in
            register)
                disturbs "$path" && echo "$path" >>"$host/unasked" && continue
                echo "$path" >>"$work/quiet"
                continue
                ;;
            names)
                echo "$path" >>"$host/bundle/paths"
                continue
                ;;
            cpuinfo) cpuinfo_disturbs && echo "$path" >>"$host/unasked" && continue ;;
            esac
            [ -r "$root$path" ] || { echo "/$place$file" >>"$host/denied"; continue; }
            case $how in
            config)
                # The first 256 octets: behind them are serial numbers. Not a text: nothing to be masked in it.
                mkdir -p "$host/${file%/*}" && dd if="$root$path" of="$host/$file" bs=256 count=1 2>/dev/null
                ;;
            whole)
                case $file in
                *.gz) mkdir -p "$host/${file%/*}" && cat "$root$path" >"$host/$file" 2>/dev/null ;;
                *) cat "$root$path" 2>/dev/null | put "$place$file" ;;
                esac
                ;;
            cpuinfo) mask_cpuinfo <"$root$path" | put "$place$file" ;;
            cmdline) mask_cmdline <"$root$path" | put "$file" ;;
            loader) grep -E '^[[:space:]]*(linux|options|GRUB_CMDLINE_LINUX)' "$root$path" | mask_cmdline | put "$file" ;;
            mounts) grep -E ' (hugetlbfs|resctrl|cgroup2?|debugfs|tracefs|bpf) ' "$root$path" | put "$file" ;;
            plain) grep -E '^[A-Za-z0-9"]+:[A-Za-z0-9 _.,/%"-]{0,40}$' "$root$path" | put "$file" ;;
            cpumanager) sed 's/"entries".*//' "$root$path" | put "$file" ;;
            limits) grep -v '^[[:space:]]*#' "$root$path" | grep -E 'memlock|rtprio' | put "$file" ;;
            *) cat "$root$path" 2>/dev/null | put "$place$file" ;;
            esac
        done
    done
    [ -f "$work/quiet" ] && read_lines "$place" <"$work/quiet" && rm -f "$work/quiet"
}

# The states of all threads, one after the other.
threads() {
    mkdir -p "$host/${1}tasks"
    (cd "$root/proc" && for pid in [0-9]*; do
        for thread in "$pid"/task/*; do echo "$root/proc/$thread"; done
    done) >"$work/threads"
    sed 's|$|/stat|' "$work/threads" | xargs cat 2>/dev/null | head -c 33554432 >"$host/${1}tasks/stat"
    sed 's|$|/status|' "$work/threads" | xargs cat 2>/dev/null |
        grep -E '^(Name|Tgid|Pid|VmLck|HugetlbPages|Cpus_allowed_list|voluntary_ctxt_switches|nonvoluntary_ctxt_switches):' |
        head -c 33554432 >"$host/${1}tasks/status"
    [ -n "$1" ] || (cd "$root/proc" && for pid in [0-9]*; do echo "$root/proc/$pid/cgroup"; done) |
        xargs grep -s '' /dev/null | sed "s|^$root/|/|" >"$host/tasks/cgroup"
}

links() { (cd "$root/sys/class/net" 2>/dev/null && for link in *; do [ -d "$link" ] && echo "$link"; done); }

outputs() {
    dmesg 2>/dev/null | grep -i -E "$messages" | mask_addresses | put commands/dmesg
    [ -s "$host/commands/dmesg" ] || rm -f "$host/commands/dmesg"
    # Reading the file gives four octets, the lowest first: microseconds.
    if [ -r /dev/cpu_dma_latency ] && has od; then
        od -An -tu1 -N4 /dev/cpu_dma_latency 2>/dev/null | {
            read -r a b c d && echo $((a + 256 * (b + 256 * (c + 256 * d))))
        } | put commands/cpu_dma_latency
    fi
    if [ "$(id -u)" = 0 ]; then
        for fd in /proc/[0-9]*/fd/*; do
            [ -h "$fd" ] && [ "$fd" -ef /dev/cpu_dma_latency ] && pid=${fd#/proc/} && pid=${pid%%/*} &&
                echo "$(cat "/proc/$pid/comm" 2>/dev/null) ($pid)"
        done 2>/dev/null | sort -u | put commands/cpu_dma_latency_holders
    fi
    has dmidecode && dmidecode -t 17 2>/dev/null | grep -v -E 'Serial Number|Asset Tag' | put commands/dmidecode_-t_17
    has systemctl && systemctl list-units --all --no-pager --plain 2>/dev/null | grep '\.service' | put commands/systemctl_list-units_--all
    if has ethtool; then
        links | while read -r link; do
            for option in -i -c -g -l -k -a -T -n --show-priv-flags --show-fec --show-eee; do
                run ethtool $option "$link"
            done
            ethtool -x "$link" 2>&1 | sed '/RSS hash key/,$d' | put "commands/ethtool_-x_$link"
            ethtool "$link" 2>/dev/null | grep -E 'Speed|Duplex|Auto-negotiation:' | put "commands/ethtool_$link"
            queues=$(ethtool -l "$link" 2>/dev/null | sed -n '/Current/,$s/Combined:[^0-9]*//p')
            case $queues in '' | *[!0-9]* | 0) ;; *)
                ethtool --per-queue "$link" --show-coalesce 2>&1 | put "commands/ethtool_--per-queue_${link}_--show-coalesce"
                ;;
            esac
        done
    fi
    has tc && links | while read -r link; do run tc qdisc show dev "$link"; done
}

statistics() {
    has ethtool && links | while read -r link; do run ethtool -S "$link"; done
}

mkdir -p "$host/bundle"
: >"$host/denied"
place=
take once ""
in_time && outputs
for place in "" again/; do
    in_time || break
    take twice "$place"
    threads "$place"
    statistics
    [ -z "$place" ] && sleep "$seconds"
done
if [ $unmask = no ]; then
    # Names of files can hold addresses too: enx001122334455.
    find "$host" -depth -name '*enx*' | while read -r path; do
        new=${path%/*}/$(echo "${path##*/}" | mask_macs)
        [ "$path" = "$new" ] || mv "$path" "$new"
    done
    for file in denied unasked; do
        [ -f "$host/$file" ] && mask_macs <"$host/$file" >"$work/masked" && mv "$work/masked" "$host/$file"
    done
fi
finish

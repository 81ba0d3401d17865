#!/bin/sh
# Records a host's state in one file, for `apus audit --from FILE` on another machine.
#
# The script runs on Linux and FreeBSD. It needs a shell, tar and the standard tools of a POSIX system. As
# root it can read more; the snapshot says what could not be read.
#
# The script changes nothing and records no secrets. All that it reads is listed below. From a text that can
# contain secrets, such as a command line, it keeps only words that are known to be none. From the kernel's
# messages, it keeps only those that an audit looks at. MAC addresses and serial numbers are masked unless
# -u is given. If taskset is installed, the script stays off isolated CPUs. It reads nothing that interrupts them.
#
#   sh apus-snapshot.sh [-o host.tar] [-t seconds between the two readings of the counters] [-u]
#
# With APUS_ROOT=FOLDER, the script reads the files in FOLDER instead of those in /.
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

# What is kept of texts that can hold secrets: see crates/host/src/snapshot/kept.txt.
cat >"$work/kept" <<'KEPT'
# What a snapshot keeps although it stands in a text that can hold secrets: names whose values (parameter, setting,
# kubelet, cpuinfo, config, dmidecode, option) are kept, words that stand alone (flag), and lines of cpuinfo that consist of the
# kernel's own names for what a CPU can do (cpunames). Everything else is masked.
# Names of cpuinfo and dmidecode: in lower case, with _ for spaces. Parameters and flags: with _ for dashes.
parameter acpi acpi_enforce_resources amd_iommu amd_iommu_intr amd_prefcore amd_pstate apic apparmor audit audit_backlog_limit
parameter biosdevname cgroup_disable cgroup_no_v1 clearcpuid clocksource cma console consoleblank cpufreq.default_governor
parameter cpufreq.off cpuidle.governor cpuidle.off cpuidle_haltpoll.force crashkernel default_affinity default_hugepagesz
parameter dis_ucode_ldr earlycon earlyprintk edac_report efi elevator enforcing fips ftrace gather_data_sampling ghes.disable
parameter group_sched haltpoll.guest_halt_poll_allow_shrink haltpoll.guest_halt_poll_grow haltpoll.guest_halt_poll_ns highres housekeeping hpet hugepages hugepagesz hugetlb_cma hugetlb_free_vmemmap hung_task_panic
parameter i915.enable_dc idle idxd.legacy_cdev_support init_on_alloc init_on_free intel_idle.max_cstate intel_idle.states_off
parameter intel_idle.use_acpi intel_iommu intel_pstate intel_uncore_frequency.disable intremap iomem iommu iommu.passthrough
parameter iommu.strict ipv6.disable irqaffinity isolcpus kpti ksm kthread_cpus kvm.halt_poll_ns kvm.halt_poll_ns_grow
parameter kvm.halt_poll_ns_shrink kvm.kvmclock_periodic_sync kvm.nx_huge_pages kvm_amd.avic kvm_amd.npt kvm_intel.enable_apicv
parameter kvm_intel.ept kvm_intel.ple_gap kvm_intel.ple_window kvm_intel.vmentry_l1d_flush l1d_flush l1tf lapic libahci.ignore_sss
parameter lockdown log_buf_len loglevel lpj lsm maxcpus mce mds mem mem_sleep_default memhp_default_state memmap
parameter memory_corruption_check mitigations mmio_stale_data module_blacklist modprobe.blacklist net.ifnames netdev_budget
parameter nmi_watchdog no_console_suspend nohz nohz_full nosmt nouveau.modeset nr_cpus numa numa_balancing nvme.poll_queues
parameter nvme.write_queues nvme_core.default_ps_max_latency_us oops page_poison panic panic_on_warn pci pcie_aspm
parameter pcie_aspm.policy pcie_port_pm pcie_ports possible_cpus preempt printk.devkmsg printk.time processor.ignore_ppc
parameter processor.max_cstate psi psi_cgroup pti random.trust_bootloader random.trust_cpu rcu_nocbs rcupdate.rcu_cpu_stall_suppress
parameter rcupdate.rcu_cpu_stall_timeout rcupdate.rcu_expedited rcupdate.rcu_normal rcupdate.rcu_normal_after_boot
parameter rcutree.blimit rcutree.enable_rcu_lazy rcutree.kthread_prio rcutree.nohz_full_patience_delay rcutree.rcu_idle_gp_delay
parameter rcutree.use_softirq reboot reg_file_data_sampling relax_domain_level reserve retbleed rodata rootdelay rootfstype
parameter sched_energy_aware schedstats security selinux skew_tick slab_nomerge slab_debug slub_debug slub_max_order softlockup_panic
parameter spec_rstack_overflow spec_store_bypass_disable spectre_bhi spectre_v2 spectre_v2_user splash srbds swapaccount swiotlb
parameter systemd.cpu_affinity systemd.legacy_systemd_cgroup_controller systemd.show_status systemd.unified_cgroup_hierarchy
parameter thermal.off threadirqs timer_migration topology transparent_hugepage tsa tsc tsc_early_khz tsx tsx_async_abort
parameter tuned.non_isolcpus usbcore.autosuspend vfio_iommu_type1.allow_unsafe_interrupts vfio_pci.disable_idle_d3
parameter vfio_pci.disable_vga vfio_pci.ids vga virtio_net.napi_tx watchdog_thresh workqueue.default_affinity_scope
parameter workqueue.power_efficient workqueue.unbound_cpus xen_nopv
flag M68k MTD_Partition MTD_Region accept_memory acpi_apic_instance acpi_backlight acpi_force_32bit_fadt_addr
flag acpi_force_table_verification acpi_irq_balance acpi_irq_isa acpi_irq_nobalance acpi_irq_pci acpi_mask_gpe
flag acpi_no_auto_serialize acpi_no_memhotplug acpi_no_static_ssdt acpi_no_watchdog acpi_os_name acpi_osi acpi_pm_good
flag acpi_rev_override acpi_rsdp acpi_sci acpi_skip_timer_override acpi_sleep acpi_use_timer_override
flag acpica_no_return_repair add_efi_memmap agp align_va_addr alignment alloc_snapshot allow_mismatched_32bit_el0
flag amd_dynamic_epp amd_iommu_dump apc apic_extnmi apicpmtimer apm arcrimi ataflop atarimouse autoconf bau baycom_epp
flag baycom_par baycom_ser_fdx baycom_ser_hdx bdev_allow_write_mounted bert_disable bgrt_disable blkdevparts boot_delay
flag bootconfig bulk_remove c101 ca_keys cachesize carrier_timeout cca ccw_timeout_log cfi cgroup_favordynmods
flag cgroup_v1_proc check_pages checkreqprot cio_ignore clk_ignore_unused clock cma_pernuma cmo_free_hint coherent_pool
flag com20020 com90io com90xx con3215_drop condev conmode console_msg_format coredump_filter cpcihp_generic cpu0_hotplug
flag cpu_init_udelay crash_kexec_post_notifiers cs89x0_dma cs89x0_media csdlock_debug dasd ddebug_query debug
flag debug_boot_weak_hash debug_guardpage_minorder debug_locks_verbose debug_objects debug_pagealloc debugfs debugpat
flag deferred_probe_timeout delayacct dfltcc dhash_entries disable disable_1tb_segments disable_cpu_apicid disable_ddw
flag disable_ipv6 disable_mtrr_cleanup disable_mtrr_trim disable_radix disable_timer_pin_1 disable_tlbie disableapic
flag dma_debug dma_debug_driver dma_debug_entries driver_async_probe dt_cpu_ftrs dump_apple_properties dyndbg
flag early_ioremap_debug early_page_ext edd efi_fake_mem efi_no_storage_paranoia efivar_ssdt eisa_irq_edge ekgdboc
flag elanfreq elfcorehdr emergency enable_mtrr_cleanup enable_timer_pin_1 erst_disable ether evm fail_make_request
flag fail_page_alloc fail_skb_realloc fail_usercopy failslab fb_tunnels floppy force_ibs force_pal_cache_flush forcepae
flag fred ftrace_boot_snapshot ftrace_dump_on_oops ftrace_filter ftrace_graph_filter ftrace_graph_max_depth
flag ftrace_graph_notrace ftrace_notrace fw_devlink gamma gart_fix_e820 gbpages gcov_persist goldfish gpt
flag hardened_usercopy hardlockup_all_cpu_backtrace hash_pointers hashdist hcl hd hest_disable hibernate
flag hibernate_compression_threads highmem hlt hostname hpet_mmap hugepage_alloc_threads hugetlb_cma_only hv_nopvspin
flag hvc_iucv hvc_iucv_allow hw_protection i2c_bus i2c_touchscreen_props i810 ia32_emulation icn ieee754 ignore_loglevel
flag ignore_rlimit_data ihash_entries ima ima_appraise ima_appraise_tcb ima_canonical_fmt ima_flush_htable ima_hash
flag ima_policy ima_tcb ima_template ima_template_fmt indirect_target_selection init init_pkru initcall_blacklist
flag initcall_debug initramfs_async initramfs_options initrd initrdmem int_pln_enable integrity_audit intel_idle io7
flag io_delay ip ipcmni_extend irqfixup irqpoll isapnp iucv ivrs_acpihid ivrs_hpet ivrs_ioapic js kasan_multi_shot
flag keep_bootcon keepinitrd kernelcore kgdbdbgp kgdboc kgdboc_earlycon kgdbwait kho kho_scratch kmac kmemleak
flag kprobe_event kvm_ kvm_cma_resv_ratio l2cr l3cr lapic_timer_c2_ok liveupdate load_ramdisk lp ltpc machtype machvec
flag max_addr max_loop md mdacon mem_encrypt memblock memchunk memory_corruption_check_period
flag memory_corruption_check_size memtest mfgpt_irq mfgptfix mga microcode min_addr mini2440 mminit_loglevel
flag movable_node movablecore mtdparts mtdset mtrr mtrr_chunk_size mtrr_gran_size mtrr_spare_reg_nr multitce n2 netdev
flag nfsaddrs nfsroot nfsrootdebug nmi_debug no387 no4lvl no5lvl no_debug_objects no_entry_flush no_file_caps
flag no_hash_pointers no_kvmapf no_kvmclock no_kvmclock_vsyscall no_scroll no_slb_preload no_steal_acc no_timer_check
flag no_uaccess_flush no_vmw_sched_clock noacpi noaer noaliencache noalign noaltinstr noapic noapictimer noautogroup
flag nobats nocache noclflush nodelayacct nodsp noefi noexec noexec32 nofb nofpu nofsgsbase nofxsr nogbpages nohalt
flag nohibernate nohlt nohpet nohugeiomap nohugevmalloc noinitrd nointremap nointroute noinvpcid noiotrap noirqbalance
flag noirqdebug noisapnp nojitter nokaslr nolapic nolapic_timer noltlbs nomca nomce nomfgpt nomodeset nomodule nompx
flag nomsi nonmi_ipi nopat nopcid nopku nopti nopv nopvspin norandmaps nordrand noreplace_smp noresume nortc nosbagart
flag nosep nosgx nosmap nosmep nosmp nosoftlockup nospec_store_bypass_disable nospectre_bhb nospectre_v1 nospectre_v2
flag nosplash nosync notsc nousb nouuid novmcoredd nowatchdog nowb nox2apic noxsave noxsaveopt noxsaves nps_mtm_hs_ctr
flag nptcg nr_uarts numa_cma numa_zonelist_order ohci1394_dma olpc_ec_timeout omap_mux page_owner panic_console_replay
flag panic_force_cpu panic_on_taint panic_print panic_sys_info parport parport_init_mode pause_on_oops pcbit pcie_pme
flag pcmv pd_ignore_unused pdcchassis percpu_alloc perf_v4_pmi pirq plip plymouth pm_async pm_debug_messages pmtmr
flag pmu_override pnp_reserve_dma pnp_reserve_io pnp_reserve_irq pnp_reserve_mem pnpacpi pnpbios ports powersave
flag ppc_strict_facility_enable ppc_tm print_fatal_signals profile prompt_ramdisk prot_virt quiet r128
flag radix_hcall_invalidate raid ramdisk_size ramdisk_start randomize_kstack_offset ras rcu_nocb_poll rdinit rdrand rdt
flag regulator_ignore_unused rescue reserve_mem reservelow reservetop reset_devices resume resume_offset resumedelay
flag resumewait retain_initrd rhash_entries rhgb ring3mwait riscv_isa_fallback riscv_nousercfi ro root rootflags
flag rootwait rproc_mem rseq_debug rseq_slice_ext rt_group_sched rw s390_iommu s390_iommu_aperture sa1100ir sbni
flag sched_debug sched_proxy_exec sched_thermal_decay_shift sched_verbose sdw_mclk_divider serialnumber sev shapers
flag show_lapic simeth simscsi single slab_debug slab_max_order slab_merge slab_min_objects slab_min_order
flag slab_strict_numa slram slub_memcg_sysfs slub_merge slub_min_objects slub_min_order slub_nomerge smart2 smt
flag softlockup_all_cpu_backtrace spia_fio_base spia_io_base spia_peddr spia_pedr split_llc split_lock_detect ssbd
flag stack_depot_disable stack_depot_max_pools stack_guard_gap stacktrace stacktrace_filter sti sti_font stifb
flag stress_hpt stress_slb svm switches sysrq_always_enabled tcpmhash_entries tdfx test_suspend text thash_entries
flag thp_anon thp_shmem tlbi topology_updates tp720 tp_printk tp_printk_stop_on_boot tpm_suspend_pcr trace_buf_size
flag trace_clock trace_event trace_instance trace_options trace_trigger traceoff_after_boot traceoff_on_warning
flag transparent_hugepage_shmem transparent_hugepage_tmpfs udbg_immortal uhash_entries unaligned_scalar_speed
flag unaligned_vector_speed unknown_nmi_panic unwind_debug user_debug userpte vdso vdso32 vector verbose video vm_debug
flag vmalloc vmcp_cma vmhalt vmpanic vmpoff vmscape vsyscall watchdog writecombine x2apic_phys x86_intel_mid_timer
flag xen_512gb_limit xen_console_io xen_emul_unplug xen_legacy_crash xen_mc_debug xen_msr_safe xen_no_vector_callback
flag xen_nopvspin xen_scrub_pages xen_timer_slop xirc2ps_cs xive xmon xsave
setting CPUAffinity CtrlAltDelBurstAction DefaultCPUAccounting DefaultMemoryAccounting DefaultTasksMax LogLevel NUMAMask
setting NUMAPolicy RuntimeWatchdogSec DEPLOY_ENABLED ENABLED FOLLOW_ISOLCPUS IRQBALANCE_AFFINITY_MASK IRQBALANCE_ARGS
setting IRQBALANCE_BANNED_CPULIST IRQBALANCE_BANNED_CPUS IRQBALANCE_BANNED_INTERRUPTS IRQBALANCE_DEBUG IRQBALANCE_ONESHOT
setting IRQ_AFFINITY_MASK ONESHOT OPTIONS
option banirq banmod debug deepestcache foreground hintpolicy interval journal migrateval oneshot powerthresh
kubelet apiVersion cgroupDriver cgroupsPerQOS cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerReconcilePeriod
kubelet enforceCPULimits kind maxPods memoryManagerPolicy nodeStatusUpdateFrequency podPidsLimit reservedSystemCPUs
kubelet topologyManagerPolicy topologyManagerScope
cpuinfo address_sizes apicid bogomips bugs cache_alignment cache_size clflush_size cpu cpu_architecture cpu_cores cpu_family
cpuinfo cpu_implementer cpu_mhz cpu_part cpu_revision cpu_variant cpuid_level features flags fpu fpu_exception hardware hart
cpuinfo initial_apicid isa marchid microcode mimpid mmu model model_name mvendorid physical_id power_management processor
cpuinfo revision siblings stepping tlb_size uarch vendor_id vmx_flags wp core_id clock
cpunames bugs features flags isa vmx_flags
config CC_VERSION_TEXT DEFAULT_TCP_CONG LOCALVERSION LSM
dmidecode bank_locator configured_clock_speed configured_memory_speed data_width error_correction_type form_factor locator
dmidecode memory_technology rank size speed total_width type type_detail
KEPT

# Masks the rest, as crates/host/src/snapshot/mask does.
cat >"$work/mask.awk" <<'AWK'
function keeps(kind, name) { return (kind " " name) in known }
function count(text, class) { return gsub(class, "&", text) }
# A run of characters as keys and packed texts have them.
function has_key(word,    run, u, l, d) {
    while (match(word, /[A-Za-z0-9+_]+/)) {
        run = substr(word, RSTART, RLENGTH)
        word = substr(word, RSTART + RLENGTH)
        if (length(run) < 16) continue
        u = count(run, "[A-Z]"); l = count(run, "[a-z]"); d = count(run, "[0-9]")
        if (u && l && d || (u || l) && d > 3 || u && d && !l && run !~ /_/ || length(run) > 31 && u > 2 && l > 2) return 1
        if (run ~ /^[0-9a-fA-F]+$/ && run ~ /[a-fA-F]/ && d) return 1
    }
    return 0
}
function private(word) {
    if (word ~ /:\/\// || word ~ /[^@]@[^0-9]/ || has_key(word)) return 1
    if (word ~ /[^@]@[0-9]/ && word !~ /@(0x)?[0-9a-fA-F]+[KMGT]*$/) return 1
    if (word ~ /(^|[:\/@])[0-9][0-9]?[0-9]?\.[0-9][0-9]?[0-9]?\.[0-9][0-9]?[0-9]?\.[0-9][0-9]?[0-9]?([:\/%.]|$)/) return 1
    if (word ~ /^[0-9a-fA-F:]*:[0-9a-fA-F:.]*([\/%]|[:.,]*$)/ && (word ~ /[0-9a-fA-F]::/ || word ~ /::[0-9a-fA-F]/ || count(word, ":") > 6) && count(word, ":") > 2) return 1
    return word ~ /(^|[^0-9a-zA-Z])[0-9a-fA-F]+$/ && match(word, /[0-9a-fA-F]+$/) && RLENGTH > 11 && substr(word, RSTART) ~ /^0|[a-fA-F]/ && substr(word, 1, RSTART - 1) !~ /0x$/
}
function prose(text,    out, word, sep) {
    out = ""
    while (match(text, /[] \t,=[()"';]/)) {
        word = substr(text, 1, RSTART - 1); sep = substr(text, RSTART, 1); text = substr(text, RSTART + 1)
        out = out (private(word) ? "MASKED" : word) sep
    }
    return out (private(text) ? "MASKED" : text)
}
# What a CPU can do, by the kernel's own names: some look like keys (avx512_vp2intersect).
function features(text,    n, i, words, out) {
    n = split(text, words, / /)
    for (i = 1; i <= n; i++) out = out (i > 1 ? " " : "") (words[i] ~ /^[a-z0-9_]*$/ ? words[i] : prose(words[i]))
    return out
}
function public(value,    n, i, parts) {
    if (value ~ /[^A-Za-z0-9_,.:;+*()!^%@$#=-]/) return 0
    n = split(value, parts, /[,;=]/)
    for (i = 1; i <= n; i++) if (prose(parts[i]) != parts[i] || parts[i] ~ /[0-9a-fA-F][0-9a-fA-F][:-]..[:-]..[:-]..[:-]..[:-]../) return 0
    return 1
}
function image(path) { sub(/^.*\//, "", path); return public(path) ? path : "MASKED" }
function parameter(word,    at, name, value, plain, small) {
    gsub(/"/, "", word)
    at = index(word, "=")
    plain = at ? substr(word, 1, at - 1) : word
    name = plain; gsub(/-/, "_", name)
    if (!at) return keeps("flag", name) || keeps("parameter", name) ? word : "MASKED"
    value = substr(word, at + 1)
    if (name == "BOOT_IMAGE") return "BOOT_IMAGE=/" image(value)
    if (keeps("parameter", name)) { if (public(value)) return word }
    else if (plain !~ /^[a-z0-9_.:-]+$/ && plain !~ /^[A-Z_]+$/ || plain !~ /^[A-Za-z0-9_]/ || count(plain, "[0-9]") > 4 || plain ~ /^[0-9]+$/ || length(plain) > 47) return "MASKED"
    small = " auto disable disabled enable enabled false force n N no none off on true y yes "
    if (value == "" || index(small, " " value " ") || value ~ /^[0-9][0-9]?$/) return word
    return plain "=MASKED"
}
# Word by word as the kernel takes it apart: double quotes protect spaces.
function cmdline(text,    out, i, c, quoted, word) {
    out = ""; word = ""; quoted = 0; text = text " "
    for (i = 1; i <= length(text); i++) {
        c = substr(text, i, 1)
        if (c == "\"") quoted = !quoted
        if ((c != " " && c != "\t") || (quoted && i < length(text))) { word = word c; continue }
        if (word == "--") return out (out == "" ? "" : " ") "-- MASKED"
        if (word != "") out = out (out == "" ? "" : " ") parameter(word)
        word = ""
    }
    return out
}
function setting(word,    option, value, at) {
    if (word ~ /^(yes|no|true|false|on|off)$/ || numbers(word)) return word
    if (word !~ /^-/) return "MASKED"
    option = word; sub(/^-*/, "", option); at = index(option, "="); value = at ? substr(option, at + 1) : ""
    if (at) option = substr(option, 1, at - 1)
    if (!keeps("option", option) && length(option) != 1) return "MASKED"
    return value == "" || numbers(value) || value ~ /^(exact|subset|ignore|none|debug)$/ ? word : "MASKED"
}
function numbers(word,    n, i, parts) {
    if (word !~ /^[0-9a-fA-F,x-]*$/ || word ~ /[0-9a-fA-F][0-9a-fA-F]-..-..-..-..-../) return 0
    n = split(word, parts, /[,-]/)
    for (i = 1; i <= n; i++) if (length(parts[i]) > 8 && parts[i] !~ /^0x/) return 0
    return 1
}
function trimmed(text) { gsub(/^[ \t"']+|[ \t"',]+$/, "", text); return text }
BEGIN {
    while ((getline line <kept) > 0) { n = split(line, words, " "); for (i = 2; i <= n; i++) known[words[1] " " words[i]] = 1 }
}
mode == "cmdline" { print cmdline($0); next }
mode == "loader" {
    line = trimmed($0)
    if (match($0, /^[ \t]*GRUB_CMDLINE_LINUX[A-Z_]*[ \t]*=/)) {
        name = trimmed(substr($0, 1, RLENGTH - 1)); value = substr($0, RSTART + RLENGTH); gsub(/["'\\]/, "", value)
        print name "=\"" cmdline(value) "\""
    } else if ($1 == "options") { sub(/^[ \t]*options[ \t]*/, ""); print "options " cmdline($0) }
    else if ($1 ~ /^linux(16|efi)?$/) { first = $1; file = $2; sub(/^[ \t]*[^ \t]+[ \t]+[^ \t]+/, ""); rest = cmdline($0); print first " /" image(file) (rest == "" ? "" : " " rest) }
    next
}
mode == "settings" {
    if ($0 ~ /^[ \t]*\[[A-Za-z]+\][ \t]*$/) { print trimmed($0); next }
    sub(/^[ \t]*(export )?/, "")
    at = index($0, "="); name = trimmed(substr($0, 1, at - 1)); value = trimmed(substr($0, at + 1))
    if (!at || name !~ /^[A-Z][A-Za-z_]*$/ || length(name) > 40) next
    if (!keeps("setting", name)) { if (value ~ /[^=]/) print name "=MASKED"; next }
    n = split(value, words, /[ \t]+/); out = ""; argument = 0; line = name ~ /ARGS$/ || name == "OPTIONS"
    for (i = 1; i <= n; i++) {
        if (line && words[i] !~ /^-/) word = !argument && words[i] ~ /^[0-9]?[0-9]?[0-9]?$/ ? words[i] : "MASKED"
        else word = setting(words[i])
        argument = word == "MASKED" && words[i] ~ /^-/ && !index(words[i], "=")
        out = out (i > 1 ? " " : "") word
    }
    print name "=" out
    next
}
mode == "kubelet" {
    at = index($0, ":"); name = trimmed(substr($0, 1, at - 1)); value = trimmed(substr($0, at + 1))
    if (!at || ($0 ~ /^[ \t-]/ && $0 !~ /^[ \t]*"/) || !keeps("kubelet", name)) next
    print name ": " (value ~ /[^A-Za-z0-9_.,\/%-]/ || length(value) > 40 || private(value) ? "MASKED" : value)
    next
}
mode == "cpuinfo" || mode == "dmidecode" {
    at = index($0, ":"); name = tolower(trimmed(substr($0, 1, at - 1))); gsub(/ /, "_", name)
    if (!at) { if ($0 == "" || $0 == "Memory Device") print; next }
    if (keeps(mode, name)) print substr($0, 1, at) (keeps("cpunames", name) ? features(substr($0, at + 1)) : prose(substr($0, at + 1)))
    next
}
mode == "config" {
    at = index($0, "="); name = substr($0, 8, at - 8); value = substr($0, at + 1)
    if (!at || $0 !~ /^CONFIG_/) next
    if (value ~ /^(y|m|n|""|-?[0-9]+|0x[0-9a-fA-F]+)$/ && length(value) < 19) print
    else if (name == "CMDLINE") print "CONFIG_CMDLINE=\"" cmdline(trimmed(value)) "\""
    else print "CONFIG_" name "=" (keeps("config", name) ? prose(value) : "\"MASKED\"")
    next
}
mode == "messages" {
    time = ""; priority = 0
    if (match($0, /^<[0-9]+>/)) { priority = substr($0, 2, RLENGTH - 2) + 0; $0 = substr($0, RLENGTH + 1) }
    if (match($0, /^\[[ 0-9.]+\] /)) { time = substr($0, 1, RLENGTH); $0 = substr($0, RLENGTH + 1) }
    if (priority > 7 || $0 ~ /^[^:]*\[[0-9]+\]:/) next
    if ((at = index($0, "ommand line")) && match(substr($0, at), /[:"]/)) {
        from = at + RSTART; head = substr($0, 1, from - 1); rest = substr($0, from); tail = ""
        if (head ~ /"$/ && match(rest, /"[^"]*$/)) { tail = substr(rest, RSTART); rest = substr(rest, 1, RSTART - 1) }
        print time head (rest ~ /^ / ? " " : "") cmdline(rest) tail
        next
    }
    n = split($0, words, / /); out = ""
    for (i = 1; i <= n; i++) {
        word = words[i]
        if (at = index(word, "=")) {
            value = substr(word, at + 1)
            if (substr(word, 1, at - 1) !~ /^(severity|type|id)$/ && (value !~ /^[0-9a-fA-Fx.\/,:;)-]*$/ || length(value) > 20)) word = substr(word, 1, at) "MASKED"
        }
        out = out (i > 1 ? " " : "") word
    }
    print time prose(out)
    next
}
mode == "modules" { gsub(/0x[0-9a-fA-F]+/, "0x0"); print; next }
mode == "prose" { print prose($0); next }
mode == "count" { print "MASKED"; next }
mode == "swaps" {
    if (NR > 1 && $1 !~ /^\/dev\/[a-z][a-z0-9-]*$/ && $1 !~ /^\/(swapfile|swap\.img|swap)$/) sub(/^[^ \t]*/, "MASKED")
    print; next
}
mode == "mounts" {
    if ($2 == "/") { print "none / MASKED MASKED 0 0"; next }
    if ($3 !~ /^(hugetlbfs|resctrl|cgroup2?|debugfs|tracefs|bpf)$/) next
    if ($1 != $3) $1 = "none"
    if ($2 !~ /^\/(dev|sys|proc|run)\// && $2 !~ /^\/(mnt\/huge|hugepages)/ || prose($2) != $2) $2 = "/MASKED"
    if (!public($4)) $4 = "MASKED"
    print; next
}
mode == "limits" {
    if (NF != 4 || $1 ~ /^#/ || $3 !~ /^(memlock|rtprio)$/ || $2 !~ /^(-|soft|hard)$/ || $4 !~ /^(-?[0-9]+|unlimited|infinity)$/) next
    if ($1 != "*" && $1 != "root") $1 = $1 ~ /^@/ ? "@MASKED" : "MASKED"
    print; next
}
mode == "stat" {
    from = index($0, "("); to = match($0, /\)[^)]*$/)
    if (from && to > from) { name = substr($0, from + 1, to - from - 1); print substr($0, 1, from) thread(name) substr($0, to) } else print
    next
}
mode == "status" { if ($0 ~ /^Name:\t/) print "Name:\t" thread(substr($0, 7)); else print; next }
# Names of units: what an administrator calls an instance, and names that stand for others' things.
mode == "paths" {
    n = split($0, parts, "/"); out = ""
    for (i = 1; i <= n; i++) out = out (i > 1 ? "/" : "") unit(parts[i])
    print out; next
}
function thread(name,    at) {
    if (at = index(name, "=")) return substr(name, 1, at) "MASKED"
    return private(name) ? "MASKED" : name
}
function unit(part,    stem, kind, at, rest) {
    if (!match(part, /\.(service|scope|slice|socket|mount|swap|automount|path|timer|target|device)([ :].*)?$/)) return part
    stem = substr(part, 1, RSTART - 1); kind = substr(part, RSTART)
    if (at = index(stem, "\\x")) return substr(stem, 1, at - 1) "-masked" sum(substr(stem, at + 2)) kind
    at = index(stem, "@"); rest = substr(stem, at + 1)
    if (!at || rest ~ /^(tty)*S*[0-9]*$/ && length(rest) < 9) return part
    return substr(stem, 1, at) "masked" sum(rest) kind
}
function sum(text,    i, s) {
    s = 0
    for (i = 1; i <= length(text); i++) s = (s * 31 + index("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:\\", substr(text, i, 1))) % 997
    return s
}
AWK

mask() { awk -v mode="$1" -v kept="$work/kept" -f "$work/mask.awk"; }

# Hardware addresses in every notation, GUIDs, UUIDs, IDs of containers. (sed -E: GNU, BSD and busybox.)
mask_identifiers() {
    if [ $unmask = yes ]; then
        cat
    else
        sed -E -e 's/[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5,}/xx:xx:xx:xx:xx:xx/g' \
            -e 's/[0-9a-fA-F]{8}([-_][0-9a-fA-F]{4}){3}[-_][0-9a-fA-F]{6}([0-9a-fA-F]{6})/masked\2/g' \
            -e 's/(^|[^0-9a-zA-Z.])[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}\.[0-9a-fA-F]{4}($|[^0-9a-zA-Z.])/\1xx:xx:xx:xx:xx:xx\2/g' \
            -e 's/[0-9a-fA-F]{4}(:[0-9a-fA-F]{4}){3,}/MASKED/g' \
            -e 's/[0-9a-fA-F]{26,}([0-9a-fA-F]{6})/masked\1/g' \
            -e 's/(en|ib|sl|wl|ww)x[0-9a-fA-F]{9,}([0-9a-fA-F]{3})/\1xmasked\2/g' \
            -e 's/(en|ib|sl|wl|ww)x[0-9a-fA-F]{7,}/\1xmasked/g' \
            -e 's/(^|[^0-9a-fA-Fx.])0[0-9a-fA-F]{8}([0-9a-fA-F]{3})([^0-9a-fA-F]|$)/\1masked\2\3/g' \
            -e 's/([g-wyzG-WYZ_-])[0-9a-fA-F]{9}([0-9a-fA-F]{3})([^0-9a-fA-F]|$)/\1masked\2\3/g'
    fi
}

# Puts standard input into a file of the snapshot, at most 64 MB of it.
put() {
    mkdir -p "$host/${1%/*}" && head -c 67108864 2>/dev/null | mask_identifiers >"$host/$1"
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
    # Complete before it takes the name, and for its owner alone, whatever stood there.
    draft=$out.$$
    case $out in
    *.gz) (cd "$host" && tar -cf - .) | gzip -c >"$draft" ;;
    *) (cd "$host" && tar -cf - .) >"$draft" ;;
    esac && chmod 600 "$draft" && mv -f "$draft" "$out" || { rm -f "$draft"; exit 3; }
    echo "$out: $(wc -c <"$out" | tr -d ' ') octets; complete: $complete" >&2
}

# FreeBSD: what is asked for is the output of its tools.

freebsd_counters() {
    run vmstat -i
    run netstat -Q
    sysctl hw.intrcnt dev.cpu 2>/dev/null | grep cx_usage | put "${place}commands/cx_usage"
}

freebsd() {
    # Without the host's name.
    uname -a | awk '{ $2 = "MASKED"; print }' | mask prose | put commands/uname_-a
    run uname -r
    # Parts of the tree that hold no names, addresses and serial numbers of the owner.
    sysctl hw dev net.iflib net.isr net.inet.tcp net.inet.udp kern.clockrate kern.eventtimer kern.hz kern.ipc \
        kern.osreldate kern.ostype kern.sched kern.smp kern.timecounter kern.features vm.stats machdep 2>/dev/null |
        grep -v -i -E 'serial|uuid|hostname|macaddr|%desc: .*serial|dumpdev' | mask prose | put commands/sysctl_-a
    for file in boot/loader.conf boot/loader.conf.local etc/sysctl.conf etc/sysctl.conf.local; do
        [ -r "$root/$file" ] && grep -E '^(hw|dev|net|vm|machdep|debug\.acpi|kern\.(eventtimer|hz|ipc|sched|smp|timecounter)|if_[a-z0-9]+_load|cpuctl_load|hint)[A-Za-z0-9_.%]*="?[A-Za-z0-9_,.-]{0,40}"?$' "$root/$file" |
            mask prose | put "$file"
    done
    for file in etc/rc.conf etc/rc.conf.local; do
        [ -r "$root/$file" ] && grep -E '^(powerd|performance|economy|ntpd|ix|ixl|ice|mlx|ifconfig_(ix|ixl|ice|mce|mlx|cxl|igb|em|bnxt)|devctl|cpuset)[A-Za-z0-9_]*=' "$root/$file" |
            mask prose | put "$file"
    done
    ifconfig -a 2>/dev/null | grep -v -E '^[[:space:]]*(ether|hwaddr|inet|inet6|lladdr|groups|nd6|tunnel|ssid)' | put commands/ifconfig_-a
    run pciconf -l
    has top && top -bSHP 200 2>/dev/null </dev/null | grep -E 'intr|kernel|idle|swi' | put commands/top_-bSH
    for irq in $(vmstat -i 2>/dev/null | sed -n 's/^irq\([0-9]*\):.*/\1/p'); do
        cpuset -g -x "$irq" 2>/dev/null
    done | put commands/cpuset_-g_-x
    dmesg 2>/dev/null | grep -i -E "$messages|ixl|ix[0-9]|interrupt storm" | mask messages | put commands/dmesg
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
once lines sys/devices/system/cpu/cpufreq/policy*/bios_limit
once register sys/devices/system/cpu/cpufreq/policy*/scaling_cur_freq
once register sys/devices/system/cpu/cpufreq/policy*/base_frequency
once register sys/devices/system/cpu/cpu*/acpi_cppc/nominal_freq
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
once prose proc/version
once lines proc/sys/kernel/osrelease
once lines proc/sys/kernel/version
once lines sys/kernel/realtime
once lines sys/kernel/kexec_crash_loaded
once modules proc/modules
once config proc/config.gz
once config boot/config-RELEASE
once loader boot/loader/entries/*.conf
once loader etc/default/grub
once lines sys/kernel/tracing/current_tracer
once lines sys/kernel/tracing/tracing_on
once count sys/kernel/tracing/set_event
once count sys/kernel/tracing/kprobe_events
once lines sys/kernel/debug/tracing/current_tracer
once lines sys/kernel/debug/tracing/tracing_on
once count sys/kernel/debug/tracing/set_event
once count sys/kernel/debug/tracing/kprobe_events
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
once swaps proc/swaps
once mounts proc/mounts
once mounts proc/self/mounts
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
once pciconfig sys/bus/pci/devices/*/config
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
once prose sys/class/dmi/id/sys_vendor
once prose sys/class/dmi/id/product_name
once prose sys/class/dmi/id/product_family
once prose sys/class/dmi/id/board_name
once prose sys/class/dmi/id/bios_vendor
once prose sys/class/dmi/id/bios_version
once prose sys/class/dmi/id/bios_date
once prose sys/class/dmi/id/chassis_type
once unmasked sys/class/dmi/id/product_serial
once lines sys/hypervisor/type
once lines sys/firmware/devicetree/base/compatible
once lines sys/firmware/devicetree/base/hypervisor/compatible
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
once settings etc/sysconfig/irqbalance
once settings etc/default/irqbalance
once prose etc/tuned/active_profile
once settings etc/systemd/system.conf
once settings etc/systemd/system.conf.d/*.conf
once names etc/systemd/system/*.wants/*
once names etc/systemd/system/*.requires/*
once kubelet etc/kubernetes/kubelet.conf
once kubelet var/lib/kubelet/config.yaml
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
    sed "s|^|$root|" "$paths" | xargs grep -s '' /dev/null | sed "s|^$root/|/|" | head -c 67108864 | masked_paths >>"$host/${1}bundle/lines"
    masked_paths <"$paths" >>"$host/${1}bundle/paths"
}

# Lines that begin with a path, in which names of units and addresses are masked.
masked_paths() {
    if [ $unmask = yes ]; then cat; else mask paths | mask_identifiers; fi
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
                xargs ls -ld 2>/dev/null | sed "s| $root/| /|" | grep ' -> ' | mask_identifiers >>"$host/bundle/links"
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
                echo "$path" | mask paths | mask_identifiers >>"$host/bundle/paths"
                continue
                ;;
            cpuinfo) cpuinfo_disturbs && echo "$path" >>"$host/unasked" && continue ;;
            esac
            [ -r "$root$path" ] || { echo "/$place$file" >>"$host/denied"; continue; }
            case $how in
            pciconfig)
                # The first 256 octets: behind them are serial numbers. Not a text: nothing to be masked in it.
                mkdir -p "$host/${file%/*}" && dd if="$root$path" of="$host/$file" bs=256 count=1 2>/dev/null
                ;;
            config)
                case $file in
                *.gz)
                    mkdir -p "$host/${file%/*}"
                    gzip -dc "$root$path" 2>/dev/null | mask config | gzip -c >"$host/$file"
                    ;;
                *) mask config <"$root$path" | put "$file" ;;
                esac
                ;;
            cpuinfo)
                if [ $unmask = yes ]; then put "$place$file" <"$root$path"; else mask cpuinfo <"$root$path" | put "$place$file"; fi
                ;;
            cpumanager)
                # The policy and the default set; the rest names containers.
                tr ',{}' '\n\n\n' <"$root$path" | sed -n -E 's/.*"policyName" *: *"(none|static)".*/P\1/p' | sed 's/^P//' | head -n 1 >"$work/policy"
                tr -d '\n' <"$root$path" | sed -n -E 's/.*"defaultCpuSet" *: *"([0-9,-]*)".*/\1/p' >"$work/set"
                printf '{"policyName":"%s","defaultCpuSet":"%s"}\n' "$(cat "$work/policy")" "$(cat "$work/set")" | put "$file"
                ;;
            cmdline | loader | mounts | kubelet | limits | modules | prose | count | swaps | settings)
                mask "$how" <"$root$path" | put "$file"
                ;;
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
    sed 's|$|/stat|' "$work/threads" | xargs cat 2>/dev/null | head -c 33554432 | mask stat | mask_identifiers >"$host/${1}tasks/stat"
    sed 's|$|/status|' "$work/threads" | xargs cat 2>/dev/null |
        grep -E '^(Name|Tgid|Pid|VmLck|HugetlbPages|Cpus_allowed_list|voluntary_ctxt_switches|nonvoluntary_ctxt_switches):' |
        head -c 33554432 | mask status | mask_identifiers >"$host/${1}tasks/status"
    [ -n "$1" ] || (cd "$root/proc" && for pid in [0-9]*; do echo "$root/proc/$pid/cgroup"; done) |
        xargs grep -s '' /dev/null | sed "s|^$root/|/|" | masked_paths >"$host/tasks/cgroup"
}

links() { (cd "$root/sys/class/net" 2>/dev/null && for link in *; do [ -d "$link" ] && echo "$link"; done); }

outputs() {
    # The kernel's own, where the tool can tell them from what programs write there.
    { dmesg -k 2>/dev/null || dmesg 2>/dev/null; } | grep -i -E "$messages" | mask messages | put commands/dmesg
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
    has dmidecode && dmidecode -t 17 2>/dev/null | mask dmidecode | put commands/dmidecode_-t_17
    has systemctl && systemctl list-units --all --no-pager --plain 2>/dev/null | grep '\.service' |
        awk '{ print $1, $2, $3, $4 }' | masked_paths | put commands/systemctl_list-units_--all
    if has ethtool; then
        links | while read -r link; do
            for option in -i -c -g -l -k -a -T --show-priv-flags --show-fec --show-eee; do
                run ethtool $option "$link"
            done
            # The rules themselves name addresses.
            ethtool -n "$link" 2>&1 | grep Total | put "commands/ethtool_-n_$link"
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
    (cd "$host" && find . -depth -type f) | while read -r path; do
        new=$(printf '%s\n' "$path" | mask_identifiers)
        [ "$path" = "$new" ] || { mkdir -p "$host/${new%/*}" && mv "$host/$path" "$host/$new"; }
    done
    find "$host" -depth -type d -exec rmdir {} \; 2>/dev/null
    for file in denied unasked; do
        [ -f "$host/$file" ] && masked_paths <"$host/$file" >"$work/masked" && mv "$work/masked" "$host/$file"
    done
fi
finish

//! Compiles the C shim against DPDK's headers, and links its libraries.

#[cfg(not(feature = "dpdk"))]
fn main() {}

#[cfg(feature = "dpdk")]
fn main() {
    println!("cargo::rerun-if-changed=src/shim/shim.c");
    println!("cargo::rerun-if-changed=src/shim/shim.h");
    println!("cargo::rerun-if-changed=src/shim/slots.c");
    println!("cargo::rerun-if-changed=src/shim/e1000.c");
    // The oldest version that this was built and tested with.
    let found = pkg_config::Config::new().atleast_version("22.11").cargo_metadata(true).probe("libdpdk");
    let libdpdk = match found {
        Ok(libdpdk) => libdpdk,
        Err(error) => {
            println!("cargo::error=libdpdk 22.11 or later is needed: {}", error.to_string().replace('\n', " "));
            println!(
                "cargo::error=install libdpdk-dev and pkg-config, as `make dpdk` does, or build without the feature dpdk"
            );
            return;
        }
    };
    let mut build = cc::Build::new();
    build
        .files(["src/shim/shim.c", "src/shim/slots.c", "src/shim/e1000.c"])
        .includes(&libdpdk.include_paths)
        .opt_level(3)
        .debug(true);
    build.define("ALLOW_EXPERIMENTAL_API", None).extra_warnings(true).warnings(true);
    // pkg_config drops what is neither a path nor a definition, but DPDK's inline functions need these two.
    let cflags = std::process::Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let cflags = cflags.ok().filter(|output| output.status.success()).map(|output| output.stdout).unwrap_or_default();
    let mut words = std::str::from_utf8(&cflags).unwrap_or_default().split_whitespace();
    while let Some(word) = words.next() {
        if word == "-include" {
            build.flag("-include").flag(words.next().unwrap_or("rte_config.h"));
        } else if word.starts_with("-march") || word.starts_with("-mcpu") || word.starts_with("-mssse") {
            build.flag(word);
        }
    }
    build.compile("apus_dpdk_shim");
}

//! Gives the shared library its soname: programs that were linked to `libapus.so` look for this name when they start.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libapus.so.0");
}

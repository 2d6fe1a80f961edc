//! Links the unwinder into the program: the loader then has one library less to find at each start.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
}

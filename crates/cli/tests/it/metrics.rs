use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Root, Running, apus, run, text};

/// `apus metrics` on a free port.
struct Server {
    running: Running,
    address: String,
}

fn serve(root: &Root) -> Server {
    let mut child = apus(root, &["metrics", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("serving http://").and_then(|l| l.split('/').next()).expect(&line).to_owned();
    Server { running: Running(child), address }
}

/// What comes back for these bytes; what had come, if the connection is reset as an overload does.
fn ask(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    if let Err(e) = stream.read_to_end(&mut answer) {
        assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(address: &str, target: &str) -> String {
    ask(address, format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())
}

#[test]
fn the_counters_of_running_instances() {
    let root = Root::new();
    let worker = root.worker("edge", 0);
    let mut server = serve(&root);
    let answer = get(&server.address, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{answer}");
    let line = "\napus_received_frames_total{instance=\"edge\",worker=\"0\"} 1000\n";
    assert!(answer.contains(line) && answer.ends_with("# EOF\n"), "{answer}");
    assert!(answer.contains("\napus_pickup_lateness_seconds_count{instance=\"edge\",worker=\"0\"} 1000\n"));
    drop(worker);
    assert!(!get(&server.address, "/metrics").contains("edge"), "an instance that has ended is still there");
    assert_eq!(server.running.end(Signal::INT), Some(0));
}

#[test]
fn bad_requests_get_an_answer_and_end_nothing() {
    let root = Root::new();
    let mut server = serve(&root);
    let status = |request: &[u8]| ask(&server.address, request).split(' ').nth(1).unwrap_or("none").to_owned();
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "200");
    assert_eq!(status(b"GET /nothing HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status(b"DELETE /metrics HTTP/1.1\r\n\r\n"), "405");
    assert_eq!(status(b"\x16\x03\x01\x02\x00\x01\r\n\r\n"), "400");
    assert_eq!(status(&[b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 9_000]].concat()), "431");
    let began = Instant::now();
    assert_eq!(status(b"GET /metr"), "408");
    assert!(began.elapsed() < Duration::from_secs(6));
    drop(TcpStream::connect(&server.address).unwrap());
    // Who holds a place gives it up to who comes.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    assert!(get(&server.address, "/metrics").starts_with("HTTP/1.1 200"), "silent clients keep the server busy");
    drop(silent);
    assert_eq!(server.running.end(Signal::TERM), Some(0));
}

/// Without a free file descriptor it once tried to accept again and again, with a warning each time.
#[test]
fn without_file_descriptors_it_waits_and_answers_later() {
    let root = Root::new();
    let words = ["metrics", "--listen", "127.0.0.1:0"];
    let mut child = apus(&root, &words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("serving http://").and_then(|l| l.split('/').next()).expect(&line).to_owned();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let mut running = Running(child);
    let pid = rustix::process::Pid::from_child(&running.0);
    // Not before it answers are all of its files open.
    assert!(get(&address, "/metrics").starts_with("HTTP/1.1 200"));
    let limit = |current| {
        let limits = rustix::process::Rlimit { current: Some(current), maximum: Some(1024) };
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Nofile, limits).unwrap()
    };
    limit(3);
    let began = Instant::now();
    let mut waiting = TcpStream::connect(&address).unwrap();
    waiting.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
    assert!(heard.recv_timeout(Duration::from_secs(30)).unwrap().contains("cannot accept a connection"));
    // Whatever the load: at most one attempt a second, of which only the first is told.
    while began.elapsed() < Duration::from_millis(1_500) {
        assert!(heard.recv_timeout(Duration::from_millis(100)).is_err(), "told again");
    }
    limit(1024);
    waiting.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(running.end(Signal::INT), Some(0));
}

#[test]
fn a_port_in_use_is_3_and_names_the_remedy() {
    let root = Root::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&root, &["metrics", "--listen", &address]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.contains(&address) && said.contains("\n  fix: use another port"), "{said}");
    assert_eq!(run(&root, &["metrics", "--listen", "9469"]).status.code(), Some(2));
}

#[test]
fn a_real_prometheus_scrapes_a_running_instance() {
    if Command::new("prometheus").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        testkit::skip("no prometheus here; apt-get install prometheus");
        return;
    }
    let root = Root::new();
    let worker = apus(&root, &["run", "macswap", "memory:64", "--mode", "backoff", "--name", "edge"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut worker = Running(worker);
    let mut server = serve(&root);
    let directory = Root::new();
    let (mut prometheus, api) = prometheus(&directory.0, &server.address);

    let received = "apus_received_frames_total{instance=\"edge\",worker=\"0\"}";
    let mut scraped = |expression: &str, above: f64| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(prometheus.0.try_wait().unwrap().is_none(), "{}", log(&directory.0));
            let value = query(&api, expression).map(|value| value.parse::<f64>().unwrap());
            match value {
                Some(value) if value > above => return value,
                _ => assert!(Instant::now() < deadline, "{expression}: {value:?}:\n{}", log(&directory.0)),
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    let first = scraped(received, 0.0);
    let second = scraped(received, first);
    assert!(second > first, "the counter grows from scrape to scrape");
    let services = "sum(apus_service_seconds_count{instance=\"edge\"})";
    assert!(scraped(services, 0.0) > 0.0);
    prometheus.end(Signal::TERM);
    assert_eq!(worker.end(Signal::INT), Some(0));
    assert_eq!(server.running.end(Signal::INT), Some(0));
}

/// A Prometheus server on loopback that scrapes `target` each second; its address.
fn prometheus(directory: &Path, target: &str) -> (Running, String) {
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
         scrape_configs:\n- job_name: apus\n  honor_labels: true\n  static_configs: [{{targets: ['{target}']}}]\n"
    );
    fs::write(directory.join("prometheus.yml"), config).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let child = Command::new("prometheus")
        .current_dir(directory)
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .arg(format!("--web.listen-address={free}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(directory.join("log")).unwrap())
        .spawn()
        .unwrap();
    (Running(child), free)
}

/// The value of a query with one result; `None` until the server runs and has it.
fn query(api: &str, expression: &str) -> Option<String> {
    let mut stream = TcpStream::connect(api).ok()?;
    let encoded: String = expression.bytes().map(|b| format!("%{b:02X}")).collect();
    write!(stream, "GET /api/v1/query?query={encoded} HTTP/1.0\r\nHost: {api}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    Some(body["data"]["result"][0]["value"][1].as_str()?.to_owned())
}

fn log(directory: &Path) -> String {
    fs::read_to_string(directory.join("log")).unwrap_or_default()
}

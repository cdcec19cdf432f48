//! Sprites, policies, checkpoints, and retries.

use crate::service::{OWNER, Service, TOKEN, soon};
use glovebox_proto::{Class, Code};
use glovebox_sprites::{Claim, NewSprite, PolicyRule, Renewal, RenewalTimes, labels, read_until};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn sprite_is_made_taken_again_and_destroyed() {
    let service = Service::start(&[]);
    let client = &service.client;
    let labels = labels(OWNER, 1_800_000_000);
    let wanted = NewSprite {
        name: "gb-001122-one-abcd",
        owner: OWNER,
        labels: &labels,
        is_known: false,
    };
    let made = client.create_or_get(&wanted, soon()).unwrap();
    assert!(made.is_new && made.sprite.is_owned_by(OWNER));
    let taken = client.create_or_get(&wanted, soon()).unwrap();
    assert!(!taken.is_new);
    assert_eq!(taken.sprite.labels.as_deref(), Some(&labels[..]));

    let other = NewSprite {
        owner: "ffff",
        ..wanted.clone()
    };
    let fault = client.create_or_get(&other, soon()).unwrap_err();
    assert_eq!(
        (fault.class, fault.code),
        (Class::Refused, Code::AlreadyExists)
    );

    let later = glovebox_sprites::labels(OWNER, 1_900_000_000);
    client.set_labels(wanted.name, &later, soon()).unwrap();
    let sprite = client.get(wanted.name, soon()).unwrap().unwrap();
    assert_eq!(read_until(&sprite.labels.unwrap()), Some(1_900_000_000));

    assert!(client.destroy(wanted.name, soon()).unwrap());
    assert_eq!(client.get(wanted.name, soon()).unwrap(), None);
    assert!(!client.destroy(wanted.name, soon()).unwrap());
    // The destruction was confirmed by a response that the Sprite does not exist.
    let path = "/v1/sprites/gb-001122-one-abcd";
    let requests = service.requests();
    let gone = requests
        .iter()
        .position(|line| *line == format!("DELETE {path} 204"));
    assert_eq!(requests[gone.unwrap() + 1], format!("GET {path} 404"));
}

#[test]
fn listing_has_all_pages_of_a_prefix() {
    let service = Service::start(&[]);
    for number in 0..53 {
        service.create(&format!("gb-a-{number:02}"));
    }
    service.create("gb-b-00");
    let found = service.client.list("gb-a-", soon()).unwrap();
    assert_eq!(found.len(), 53);
    assert_eq!(found[52].name, "gb-a-52");
    assert_eq!(service.client.list("", soon()).unwrap().len(), 54);
    let pages = service
        .requests()
        .iter()
        .filter(|line| line.starts_with("GET"))
        .count();
    assert_eq!(pages, 4);
}

#[test]
fn sprites_of_the_owner_are_listed_with_their_claims() {
    let service = Service::start(&[]);
    let make = |name: &str, owner: &str, until: u64| {
        let wanted = NewSprite {
            name,
            owner,
            labels: &labels(owner, until),
            is_known: false,
        };
        service.client.create_or_get(&wanted, soon()).unwrap();
    };
    make("gb-001122-alive-0000", OWNER, 2000);
    make("gb-001122-crashed-0000", OWNER, 2000);
    make("gb-001122-old-0000", OWNER, 1000);
    // The first six digits are the owner's, the label is not.
    make("gb-001122-other-0000", "0011220000000000", 1000);
    make("somebody-else", OWNER, 1000);
    let is_known = |name: &str| !name.contains("crashed") && !name.contains("old");
    let made = service
        .client
        .list_made(OWNER, &is_known, 1500, soon())
        .unwrap();
    let found: Vec<_> = made
        .iter()
        .map(|one| (one.name.as_str(), one.claim))
        .collect();
    assert_eq!(
        found,
        [
            ("gb-001122-alive-0000", Claim::Kept),
            ("gb-001122-crashed-0000", Claim::Unknown),
            ("gb-001122-old-0000", Claim::Expired),
            ("gb-001122-other-0000", Claim::NotOurs),
        ]
    );
}

#[test]
fn label_of_a_machine_that_is_wanted_is_renewed_and_others_stay() {
    let service = Service::start(&[]);
    let mut own = labels(OWNER, 1000);
    own.push("team-a".to_owned());
    let wanted = NewSprite {
        name: "gb-001122-long-0000",
        owner: OWNER,
        labels: &own,
        is_known: false,
    };
    service.client.create_or_get(&wanted, soon()).unwrap();
    let labels = |name: &str| {
        let sprite = service.client.get(name, soon()).unwrap();
        sprite.unwrap().labels.unwrap()
    };
    let client = service.client.clone();
    let until = AtomicU64::new(2000);
    let renew = move || {
        let until = until.fetch_add(1000, Ordering::SeqCst);
        client.renew("gb-001122-long-0000", OWNER, until, soon())
    };
    let times = RenewalTimes {
        every: Duration::from_millis(30),
        look: Duration::from_millis(10),
    };
    let renewal = Renewal::start(times, Box::new(renew)).unwrap();
    let is_renewed = || read_until(&labels("gb-001122-long-0000")) >= Some(3000);
    assert!(testkit::wait_until(Duration::from_secs(30), is_renewed));
    drop(renewal);
    assert!(labels("gb-001122-long-0000").contains(&"team-a".to_owned()));
    // Machines of others, and destroyed ones, are left alone.
    let other = NewSprite {
        name: "somebody-else",
        owner: "0011220000000000",
        labels: &[],
        is_known: false,
    };
    service.client.create_or_get(&other, soon()).unwrap();
    let renew = |name: &str| service.client.renew(name, OWNER, 9000, soon());
    renew("somebody-else").unwrap();
    renew("gb-001122-gone-0000").unwrap();
    assert_eq!(labels("somebody-else"), Vec::<String>::new());
}

#[test]
fn registry_decides_where_labels_are_dropped() {
    let service = Service::start(&["--no-labels"]);
    let labels = labels(OWNER, 0);
    let mut wanted = NewSprite {
        name: "plain",
        owner: OWNER,
        labels: &labels,
        is_known: false,
    };
    let made = service.client.create_or_get(&wanted, soon()).unwrap();
    assert!(made.is_new && !made.sprite.is_owned_by(OWNER));
    let fault = service.client.create_or_get(&wanted, soon()).unwrap_err();
    assert_eq!(fault.code, Code::AlreadyExists);
    wanted.is_known = true;
    assert!(
        !service
            .client
            .create_or_get(&wanted, soon())
            .unwrap()
            .is_new
    );
}

#[test]
fn policy_is_set_and_read_back() {
    let rules = [PolicyRule::allow("crates.io"), PolicyRule::deny_others()];
    let service = Service::start(&[]);
    service.create("one");
    service.client.set_policy("one", &rules, soon()).unwrap();
    service.client.set_policy("one", &[], soon()).unwrap();

    let forgetful = Service::start(&["--forget-policy"]);
    forgetful.create("one");
    let fault = forgetful
        .client
        .set_policy("one", &rules, soon())
        .unwrap_err();
    assert_eq!(fault.code, Code::SelfTestFailed);
}

#[test]
fn checkpoint_brings_files_back() {
    let service = Service::start(&[]);
    service.create("one");
    let file = service.home("one").join("file");
    std::fs::write(&file, "before").unwrap();
    let id = service.client.checkpoint("one", "a word", soon()).unwrap();
    std::fs::write(&file, "after").unwrap();
    let listed = service.client.checkpoints("one", soon()).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].id.as_str(), listed[0].comment.as_deref()),
        ("v0", Some("a word"))
    );
    service.client.restore("one", &id, soon()).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before");
    let fault = service.client.restore("one", "v9", soon()).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
}

#[test]
fn rate_limit_is_waited_for_within_the_deadline() {
    let service = Service::start(&["--limited-creates", "2", "--retry-after", "1"]);
    let begun = Instant::now();
    service.create("one");
    assert!(begun.elapsed() >= Duration::from_secs(2));

    let service = Service::start(&["--limited-creates", "9", "--retry-after", "3600"]);
    let labels = labels(OWNER, 0);
    let wanted = NewSprite {
        name: "one",
        owner: OWNER,
        labels: &labels,
        is_known: false,
    };
    let begun = Instant::now();
    let fault = service.client.create_or_get(&wanted, soon()).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(fault.code, Code::RateLimited);
    assert!(
        fault.is_retryable && fault.message.contains("3600 s"),
        "{}",
        fault.message
    );
}

#[test]
fn full_account_is_told_at_once() {
    let service = Service::start(&["--max-sprites", "1"]);
    service.create("one");
    let labels = labels(OWNER, 0);
    let wanted = NewSprite {
        name: "two",
        owner: OWNER,
        labels: &labels,
        is_known: false,
    };
    let fault = service.client.create_or_get(&wanted, soon()).unwrap_err();
    assert_eq!(fault.code, Code::TooManySandboxes);
    assert_eq!(service.requests().len(), 2);
}

#[test]
fn expired_token_is_read_once_more() {
    let options = ["--expire-after", "1", "--next-token", "newer"];
    let service = Service::start_with_tokens(&options, TOKEN, &[TOKEN, "newer"]);
    service.create("one");
    assert!(service.client.get("one", soon()).unwrap().is_some());
    let statuses: Vec<String> = service.requests();
    assert_eq!(
        statuses,
        [
            "POST /v1/sprites 201",
            "GET /v1/sprites/one 401",
            "GET /v1/sprites/one 200"
        ]
    );
}

#[test]
fn refused_token_is_a_refusal_that_shows_no_token() {
    let service = Service::start_with_tokens(&[], "another", &[TOKEN]);
    let fault = service.client.get("one", soon()).unwrap_err();
    assert_eq!(
        (fault.class, fault.code),
        (Class::Refused, Code::NotAuthenticated)
    );
    let shown = format!("{fault:?} {:?} {:?}", service.client, service.requests());
    assert!(!shown.contains("planted"), "{shown}");
}

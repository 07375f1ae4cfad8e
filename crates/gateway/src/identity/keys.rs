//! API keys of a table, by prefix. They are few words of memory each, and to check one costs a hash: nothing has to be remembered.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::Config;
use holdfast_identity::Subject;
use holdfast_identity::api_key::{Hash, MARK, Shown};

/// See the module.
#[derive(Debug, Default)]
pub struct ApiKeys {
    /// None: more than one tenant has a key with this prefix. Which is meant would be luck, so it is nobody's.
    keys: BTreeMap<Box<str>, Option<Known>>,
}

#[derive(Debug)]
struct Known {
    hash: Hash,
    expires: Option<u64>,
    subject: Arc<Subject>,
}

/// Why a key proves nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// There is no such key.
    Unknown,
    /// Its time is over.
    Expired,
}

impl ApiKeys {
    /// Those of a configuration, if it takes keys.
    pub fn of(config: &Config) -> Option<Arc<Self>> {
        config.auth.as_ref().filter(|auth| auth.keys)?;
        let mut keys: BTreeMap<Box<str>, Option<Known>> = BTreeMap::new();
        for tenant in &config.tenants {
            for key in &tenant.keys {
                let subject = Subject {
                    issuer: format!("{MARK}{}", key.prefix).into(),
                    tenant: tenant.name.clone(),
                    user: key.user.clone(),
                    plan: key.plan.clone(),
                    // Whoever makes keys decides about limits, too.
                    chooses: true,
                    device: None,
                    shown: Box::default(),
                    scopes: key.scopes.clone(),
                };
                let hash = Hash::from_bytes(key.hash);
                let known = Known { hash, expires: key.expires, subject: Arc::new(subject) };
                let place = keys.entry(key.prefix.clone());
                let twin = matches!(place, std::collections::btree_map::Entry::Occupied(_));
                if twin {
                    tracing::error!(prefix = &*key.prefix, tenant = %tenant.name, "two tenants have a key with this prefix: neither is taken");
                }
                place.and_modify(|known| *known = None).or_insert(Some(known));
            }
        }
        Some(Arc::new(Self { keys }))
    }

    /// Whom the key with this prefix names, and a part of its hash: another key under the same prefix is another one. `None`: there is none, or its
    /// time is over. `wall` is in milliseconds since 1970.
    pub fn known(&self, prefix: &str, wall: u64) -> Option<(Arc<Subject>, String)> {
        let known = self.keys.get(prefix)?.as_ref().filter(|known| known.expires.is_none_or(|until| wall < until))?;
        Some((known.subject.clone(), known.hash.to_hex().chars().take(16).collect()))
    }

    /// When the key with this prefix ends, in milliseconds since 1970, if it does.
    pub fn ends(&self, prefix: &str) -> Option<u64> {
        self.keys.get(prefix)?.as_ref()?.expires
    }

    /// Whom a key names. `wall` is in milliseconds since 1970.
    ///
    /// # Errors
    /// Why it names nobody.
    pub fn check(&self, text: &[u8], wall: u64) -> Result<Arc<Subject>, BadKey> {
        let shown = std::str::from_utf8(text).ok().and_then(Shown::parse).ok_or(BadKey::Unknown)?;
        let known = self.keys.get(shown.prefix).and_then(Option::as_ref).ok_or(BadKey::Unknown)?;
        // Hashes compare in constant time.
        if known.hash != shown.hash() {
            return Err(BadKey::Unknown);
        }
        if known.expires.is_some_and(|until| wall >= until) {
            return Err(BadKey::Expired);
        }
        Ok(known.subject.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_config::{Source, load};
    use holdfast_identity::api_key;

    fn config(tenants: &str) -> Config {
        let text = format!("auth: {{ keys: true }}\ntenants:\n{tenants}");
        load(&Source::text("c.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}")).config
    }

    fn key(number: u8) -> (String, String) {
        let (text, prefix, hash) = api_key::make([number; 38]);
        (text, format!("prefix: \"{prefix}\", hash: \"blake3:{}\"", hash.to_hex()))
    }

    #[test]
    fn two_keys_of_one_tenant_are_good_at_a_time_and_one_ends() {
        let ((first, kept), (second, also), (other, _)) = (key(1), key(2), key(3));
        let config = config(&format!(
            "  - {{ name: acme, keys: [{{ {kept}, expires: 2027-01-31T00:00:00Z, user: u1, scopes: [infer] }}, {{ {also} }}] }}\n"
        ));
        let keys = ApiKeys::of(&config).unwrap();
        let until = 1_801_353_600_000;
        let subject = keys.check(first.as_bytes(), until - 1).unwrap();
        assert_eq!(
            (subject.tenant.as_str(), subject.user.as_deref(), subject.may("infer")),
            ("acme", Some("u1"), true)
        );
        assert_eq!(&*subject.issuer, &first[..16]);
        assert_eq!(keys.check(first.as_bytes(), until).err(), Some(BadKey::Expired));
        assert!(keys.check(second.as_bytes(), u64::MAX).is_ok());
        let mixed = format!("{}{}", &first[..17], &second[17..]);
        for bad in [other.as_str(), "", "hfk_", &mixed, &first[..first.len() - 1]] {
            assert_eq!(keys.check(bad.as_bytes(), 0).err(), Some(BadKey::Unknown), "{bad}");
        }
    }

    #[test]
    fn a_prefix_of_two_tenants_is_nobodys() {
        let ((text, kept), (fine, also)) = (key(1), key(2));
        let config = config(&format!(
            "  - {{ name: acme, keys: [{{ {kept} }}] }}\n  - {{ name: globex, keys: [{{ {kept} }}, {{ {also} }}] }}\n"
        ));
        let keys = ApiKeys::of(&config).unwrap();
        assert_eq!(keys.check(text.as_bytes(), 0).err(), Some(BadKey::Unknown));
        assert!(keys.check(fine.as_bytes(), 0).is_ok());
    }
}

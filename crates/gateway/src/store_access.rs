//! How the configuration says that a store is reached, as `bank` takes it.

use holdfast_bank::access::{Access, Files, Secret};
use holdfast_config::{RedisAccess, RedisUrl};

/// Nothing is read yet: passwords and certificates are for each connection.
pub fn of(url: &RedisUrl, access: &RedisAccess) -> Access {
    let file = access.password_file.clone().map(Secret::File);
    let tls = access
        .authorities
        .clone()
        .filter(|_| url.is_secure())
        .map(|authorities| Files { authorities, own: access.certificates.clone().zip(access.key.clone()) });
    Access {
        user: access.user.clone(),
        password: file.or_else(|| access.password_env.clone().map(Secret::Environment)),
        tls,
    }
}

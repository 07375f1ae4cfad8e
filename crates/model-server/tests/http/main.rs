//! The server over real TCP: what a client of the protocol sees, and what each fault does.

#[cfg(test)]
mod api;
#[cfg(test)]
mod client;
#[cfg(test)]
mod death;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod loads;

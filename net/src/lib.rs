//! The wire protocol of Sealog, its server and its client library.

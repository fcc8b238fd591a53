//! Why a controller could not do its work.

/// Part of the server's refusal of new objects in a namespace that is being deleted.
const TERMINATING: &str = "because it is being terminated";

/// Why a controller could not do its work. It tries again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Api(Box<kube::Error>),
    /// The object asks for something that cannot be done; the message says what to change.
    #[error("{0}")]
    Unusable(String),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl Error {
    pub fn code(&self) -> u16 {
        match self {
            Self::Api(error) => code(error),
            Self::Unusable(_) => 0,
        }
    }

    /// Another client wrote first. The cache is only late.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// The cache is only late: another client wrote first, or the object is gone or goes with its namespace.
    pub fn is_race(&self) -> bool {
        match self.code() {
            404 | 409 => true,
            403 => self.to_string().contains(TERMINATING),
            _ => false,
        }
    }
}

/// The HTTP status code of the API's answer, 0 if there was none.
pub fn code(error: &kube::Error) -> u16 {
    match error {
        kube::Error::Api(status) => status.code,
        _ => 0,
    }
}

impl workqueue::Failure for Error {
    fn is_expected(&self) -> bool {
        self.is_race()
    }
}

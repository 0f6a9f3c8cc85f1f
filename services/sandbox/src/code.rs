//! The codes of the failures that the programs of this service report.

use rpc::v1::ErrorCode;
use sandbox_wire::v1::FailureCode;

/// The code of a failure that the init reports.
pub fn of_failure(code: FailureCode) -> ErrorCode {
    match code {
        FailureCode::Unspecified | FailureCode::Internal => ErrorCode::Internal,
        FailureCode::ArgumentInvalid => ErrorCode::ArgumentInvalid,
        FailureCode::PathOutsideWorkspace => ErrorCode::PathOutsideWorkspace,
        FailureCode::PathInvalid => ErrorCode::PathInvalid,
        FailureCode::FileNotFound => ErrorCode::FileNotFound,
        FailureCode::FileTooLarge => ErrorCode::FileTooLarge,
        FailureCode::FileIsBinary => ErrorCode::FileIsBinary,
        FailureCode::FileIsDirectory => ErrorCode::FileIsDirectory,
        FailureCode::FileNotRegular => ErrorCode::FileNotRegular,
        FailureCode::FileNotPermitted => ErrorCode::FileNotPermitted,
        FailureCode::FileChanged => ErrorCode::FileChanged,
        FailureCode::PatternInvalid => ErrorCode::PatternInvalid,
        FailureCode::DiskFull => ErrorCode::DiskFull,
        FailureCode::ProcessLimit => ErrorCode::ProcessLimit,
        FailureCode::SandboxBusy => ErrorCode::SandboxBusy,
        FailureCode::TerminalUnknown => ErrorCode::TerminalUnknown,
        FailureCode::TerminalInputFull => ErrorCode::TerminalInputFull,
    }
}

/// The code of a layer that `flotilla-unpack` refuses.
pub fn of_layer(name: &str) -> ErrorCode {
    let all = [
        ErrorCode::LayerDigestWrong,
        ErrorCode::LayerTooManyEntries,
        ErrorCode::LayerTooLarge,
        ErrorCode::LayerBomb,
        ErrorCode::LayerTooDeep,
        ErrorCode::LayerPathInvalid,
        ErrorCode::LayerEntryInvalid,
        ErrorCode::LayerUnreadable,
        ErrorCode::LayerWriteFailed,
    ];
    ErrorCode::parse(name).filter(|code| all.contains(code)).unwrap_or(ErrorCode::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_of_the_init_has_the_stable_name_that_its_code_spells() {
        let codes: Vec<_> = (1..).map_while(|number| FailureCode::try_from(number).ok()).collect();
        let names: Vec<_> = codes.iter().map(|code| of_failure(*code).as_str()).collect();
        let spelled: Vec<_> = codes
            .iter()
            .map(|code| code.as_str_name().trim_start_matches("FAILURE_CODE_").to_lowercase())
            .collect();
        assert_eq!((names, codes.len()), (spelled.iter().map(String::as_str).collect(), 17));
    }
}

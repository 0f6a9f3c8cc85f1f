//! The codes of the failures that the programs of this service report.

use sandbox_wire::v1::FailureCode;

/// What went wrong, for programs: one list for all services.
pub type Code = rpc::v1::ErrorCode;

/// The code of a failure that the init reports.
pub fn of_failure(code: FailureCode) -> Code {
    match code {
        FailureCode::Unspecified | FailureCode::Internal => Code::Internal,
        FailureCode::ArgumentInvalid => Code::ArgumentInvalid,
        FailureCode::PathOutsideWorkspace => Code::PathOutsideWorkspace,
        FailureCode::PathInvalid => Code::PathInvalid,
        FailureCode::FileNotFound => Code::FileNotFound,
        FailureCode::FileTooLarge => Code::FileTooLarge,
        FailureCode::FileIsBinary => Code::FileIsBinary,
        FailureCode::FileIsDirectory => Code::FileIsDirectory,
        FailureCode::FileNotRegular => Code::FileNotRegular,
        FailureCode::FileNotPermitted => Code::FileNotPermitted,
        FailureCode::FileChanged => Code::FileChanged,
        FailureCode::PatternInvalid => Code::PatternInvalid,
        FailureCode::DiskFull => Code::DiskFull,
        FailureCode::ProcessLimit => Code::ProcessLimit,
        FailureCode::SandboxBusy => Code::SandboxBusy,
        FailureCode::TerminalUnknown => Code::TerminalUnknown,
        FailureCode::TerminalInputFull => Code::TerminalInputFull,
    }
}

/// The code of a layer that `flotilla-unpack` refuses.
pub fn of_layer(name: &str) -> Code {
    let all = [
        Code::LayerDigestWrong,
        Code::LayerTooManyEntries,
        Code::LayerTooLarge,
        Code::LayerBomb,
        Code::LayerTooDeep,
        Code::LayerPathInvalid,
        Code::LayerEntryInvalid,
        Code::LayerUnreadable,
        Code::LayerWriteFailed,
    ];
    Code::parse(name).filter(|code| all.contains(code)).unwrap_or(Code::Internal)
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

//! The control row of a session, as a decision about the session reads it.

use crate::{
    Tx,
    column::unsigned,
    error::{Entity, Error},
    phase,
};
use domain::{
    ids::{SessionId, TenantId},
    limits,
    session::{Class, Phase},
};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgRow};

/// The control row: while a transaction holds it, or as it was when a statement read it.
pub(crate) struct ControlRow {
    /// The version of the row. Every change of the row gives it another one.
    pub(crate) version: String,
    pub(crate) phase: Phase,
    pub(crate) class: Class,
    pub(crate) epoch: u64,
    pub(crate) event_seq: u64,
    pub(crate) input_seq: u64,
    pub(crate) input_ack: u64,
    cancel_seq: u64,
    /// Bytes of the prompts and notes since the newest summary.
    pub(crate) prompt_bytes: u64,
    /// Whether a revert holds the session.
    is_held: bool,
    pub(crate) revert_state: RevertState,
    /// Whether lists omit the session.
    pub(crate) is_archived: bool,
}

/// The state of a revert: the column `session_run.revert_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevertState {
    None,
    /// A revert began and has not ended: the files may be half reverted.
    Unfinished,
    /// The files are reverted. The next prompt removes the reverted messages.
    Done,
}

impl RevertState {
    /// The number in the column.
    pub(crate) const fn to_i16(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Unfinished => 1,
            Self::Done => 2,
        }
    }

    /// Reads the column.
    ///
    /// # Errors
    /// `Unreadable`: a newer version knows more states.
    pub(crate) fn from_column(number: i16) -> Result<Self, Error> {
        [Self::None, Self::Unfinished, Self::Done]
            .into_iter()
            .find(|state| state.to_i16() == number)
            .ok_or_else(|| Error::unreadable("session", UnknownRevertState(number)))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("unknown revert state {0}")]
struct UnknownRevertState(i16);

/// The columns of [`ControlRow::from_row`], of the control row `r` of the session `$2` of the tenant `$1`. `xmin` is the transaction that wrote this version
/// of the row.
pub(crate) const CONTROL_COLUMNS: &str = "r.phase, r.class, r.epoch, r.event_seq, r.input_seq, r.input_ack, r.cancel_seq, r.prompt_bytes, r.revert_state,
    r.xmin::text as version, coalesce(r.held_until > clock_timestamp(), false) as held,
    (select a.archived_at is not null from session a where a.tenant_id = $1 and a.id = $2) as archived";

impl ControlRow {
    /// Reads the columns of [`CONTROL_COLUMNS`].
    ///
    /// # Errors
    /// `Unreadable`; `Db`.
    pub(crate) fn from_row(row: &PgRow) -> Result<Self, Error> {
        Ok(Self {
            version: row.try_get("version")?,
            phase: phase::from_column(row.try_get("phase")?)?,
            class: Class::from_i16(row.try_get("class")?).unwrap_or_default(),
            epoch: unsigned(row.try_get("epoch")?),
            event_seq: unsigned(row.try_get("event_seq")?),
            input_seq: unsigned(row.try_get("input_seq")?),
            input_ack: unsigned(row.try_get("input_ack")?),
            cancel_seq: unsigned(row.try_get("cancel_seq")?),
            prompt_bytes: unsigned(row.try_get("prompt_bytes")?),
            is_held: row.try_get("held")?,
            revert_state: RevertState::from_column(row.try_get("revert_state")?)?,
            is_archived: row.try_get::<Option<bool>, _>("archived")?.unwrap_or_default(),
        })
    }

    /// Refuses to begin anything while a revert changes the files, or before an unfinished revert is finished.
    ///
    /// # Errors
    /// `Busy`, `RevertUnfinished`.
    pub(crate) fn refuse_held(&self) -> Result<(), Error> {
        if self.is_held {
            return Err(Error::Busy);
        }
        match self.revert_state {
            RevertState::Unfinished => Err(Error::RevertUnfinished),
            RevertState::None | RevertState::Done => Ok(()),
        }
    }

    /// Whether no loop owns the session and no work waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Idle
    }

    /// Whether a new input needs a worker. A running loop finds the input itself; a quarantined session waits for its
    /// operator.
    pub(crate) fn needs_worker(&self) -> bool {
        match self.phase {
            Phase::Idle | Phase::Runnable | Phase::Waiting => true,
            Phase::Running | Phase::Quarantined => false,
        }
    }

    /// The number of inputs that no loop has taken.
    pub(crate) fn inputs_waiting(&self) -> u64 {
        self.input_seq - self.input_ack
    }

    /// Whether prompts and notes with so many more bytes are not too large to load.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.prompt_bytes + bytes <= limits::SESSION_PROMPTS_BYTES_MAX
    }

    /// Whether the newest input is an abort that no loop has taken.
    pub(crate) fn ends_with_abort(&self) -> bool {
        self.cancel_seq > self.input_ack && self.cancel_seq == self.input_seq
    }

    /// Refuses an input that no worker would take before an operator releases the session.
    ///
    /// # Errors
    /// `Quarantined`.
    pub(crate) fn refuse_quarantined(&self) -> Result<(), Error> {
        if self.phase == Phase::Quarantined { Err(Error::Quarantined) } else { Ok(()) }
    }
}

/// The condition that the session `$2` of the tenant `$1` exists. The rows of a deleted session stay until workers have removed them, so
/// statements that read such rows without the session itself check this.
pub(crate) const EXISTS: &str =
    "exists (select 1 from session_run stored where stored.tenant_id = $1 and stored.session_id = $2)";

/// Locks the control row for this transaction.
///
/// # Errors
/// `NotFound`; `Unreadable`; `Db`.
pub(crate) async fn lock(tx: &mut Tx, tenant: TenantId, session: &SessionId) -> Result<ControlRow, Error> {
    let sql = format!(
        "select {CONTROL_COLUMNS} from session_run r where r.tenant_id = $1 and r.session_id = $2 for update"
    );
    let row = sqlx::query(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(session.as_str())
        .fetch_optional(&mut **tx)
        .await?
        .ok_or(Error::NotFound(Entity::Session))?;
    ControlRow::from_row(&row)
}

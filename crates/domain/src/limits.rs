//! The bounds that several files share, each with its unit and its reason. Reaching one is a named error, never a silent cut. A bound that
//! only one file uses is a constant at the head of that file.

/// Bytes of one prompt's text: far above what people type, far below what would hurt a row or a model.
pub const PROMPT_BYTES_MAX: usize = 1024 * 1024;
/// Parts of one prompt: far above what a person attaches.
pub const PROMPT_PARTS_MAX: usize = 64;
/// Bytes of all files of one prompt, as written in it: with the texts they still fit into one message of the wire.
pub const PROMPT_FILES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Tools that one prompt switches: more than there are.
pub const TOOL_SWITCHES_MAX: usize = 100;
/// Bytes of the schema of a structured answer: goes with every model call of its turn.
pub const OUTPUT_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Retries of a structured answer that does not fit, unless the prompt sets another number: OpenCode's number.
pub const STRUCTURED_RETRIES: u32 = 2;
/// Most retries that a prompt may set: a model that failed ten times fails again.
pub const STRUCTURED_RETRIES_MAX: u32 = 10;
/// Bytes of messages after which a page ends: leaves room for one more message.
pub const MESSAGES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of an idempotency key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// Bytes of a title or a name.
pub const NAME_BYTES_MAX: usize = 200;
/// Entries of one page if the client sets no limit.
pub const PAGE_DEFAULT: u32 = 50;
/// Entries of one page at most.
pub const PAGE_MAX: u32 = 200;
/// Inputs of one session that no loop has taken: a stuck session must not fill the table.
pub const INPUTS_PENDING_MAX: i64 = 1_000;
/// Bytes of an uploaded git bundle.
pub const BUNDLE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of one stored piece of a bundle: one row, well below Postgres' limits and cheap to stream.
pub const BUNDLE_PIECE_BYTES: usize = 1024 * 1024;
/// Model steps in one turn: stops a model that never ends.
pub const STEPS_PER_TURN_MAX: u32 = 200;
/// Attempts at one model call after the first: OpenCode's number.
pub const MODEL_RETRIES_MAX: u32 = 5;
/// Longest back-off that a provider may ask for; a longer one fails the turn. Milliseconds.
pub const RETRY_AFTER_MAX_MS: u64 = 3_600_000;
/// Longest back-off that keeps its slot; a longer one parks the session. Parking and coming back costs two writes and a
/// read of the conversation. Milliseconds.
pub const BACK_OFF_IN_SLOT_MS: u64 = 2_000;
/// Time that people have to answer a request before it counts as refused, unless the worker's settings set another: until the next
/// working day. Milliseconds.
pub const REQUEST_WAIT_MS: u64 = 24 * 3_600_000;
/// Bytes of a person's answer to a request.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Permission rules of a new session.
pub const PERMISSION_RULES_MAX: usize = 100;
/// Bytes of a rule's tool name and pattern together.
pub const PERMISSION_RULE_BYTES_MAX: usize = 1_024;
/// Largest weight of a tenant; the least is 1.
pub const TENANT_WEIGHT_MAX: u32 = 1_000;
/// Largest number of loops that an operator can let a tenant run at once.
pub const TENANT_RUNNING_MOST: u32 = 100_000;
/// Generations of subtasks below a root session: a deeper tree would lose more to coordination than it gains.
pub const SUBTASK_DEPTH_MAX: i16 = 5;
/// Subtasks of one root session over its life: stops an agent that starts subtasks without end.
pub const SUBTASKS_PER_TREE_MAX: i64 = 256;
/// Tool calls of a subtask that its parent shows.
pub const SUBTASK_SUMMARY_MAX: usize = 50;
/// Least time between two reports of a subtask to its parent; milliseconds.
pub const SUBTASK_REPORT_MS: u64 = 1_000;
/// Bytes of a subtask's answer that its parent's model reads; the whole is in the child session.
pub const SUBTASK_ANSWER_BYTES_MAX: usize = 50 * 1024;
/// Identical consecutive tool calls with the same answer after which the worker asks a person whether the model may go on: OpenCode's
/// number.
pub const DOOM_LOOP_CALLS: usize = 3;
/// Tool calls of one model answer. The worker refuses each further one.
pub const TOOL_CALLS_PER_STEP_MAX: usize = 64;
/// Tool calls of one step that run at the same time.
pub const TOOLS_PARALLEL_MAX: usize = 8;
/// Bytes of the arguments of one tool call.
pub const TOOL_ARGUMENTS_BYTES_MAX: usize = 12 * 1024 * 1024;
/// Bytes of a tool's output shown to the model; the rest is in a file that it can read.
pub const TOOL_OUTPUT_BYTES_MAX: usize = 50 * 1024;
/// Lines of a tool's output shown to the model.
pub const TOOL_OUTPUT_LINES_MAX: usize = 2_000;
/// Bytes of one picture or document that a tool gives: in base64 the 5 MB that every provider takes of one picture.
pub const TOOL_MEDIA_BYTES_MAX: usize = 3_932_160;
/// Pictures and documents that the tools of one step give: a batch reads no more files at once.
pub const STEP_MEDIA_MAX: usize = 10;
/// Bytes of the pictures and documents that the tools of one step give, as they are written: with its texts the step is one
/// message of the wire.
pub const STEP_MEDIA_WRITTEN_BYTES_MAX: usize = 6 * 1024 * 1024;
/// Bytes of the pictures and documents that one model call carries, as they are written; older ones are told in words.
/// Below the 20 MB that the least generous provider takes of a whole question.
pub const MODEL_MEDIA_WRITTEN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Pictures and documents that one model call carries; older ones are told in words. Providers take 100 or more.
pub const MODEL_MEDIA_MAX: usize = 50;
/// Text of one part: a model that streams without end is stopped here. Bytes.
pub const PART_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Default and longest run of one command; milliseconds.
pub const EXEC_TIMEOUT_MS: u32 = 120_000;
/// See [`EXEC_TIMEOUT_MS`].
pub const EXEC_TIMEOUT_MAX_MS: u32 = 600_000;
/// Output of one command kept on disk; bytes.
pub const EXEC_OUTPUT_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Largest file that is read or written whole; bytes.
pub const FILE_BYTES_MAX: usize = 10 * 1024 * 1024;
/// Longest page of the web that is read; bytes.
pub const WEB_PAGE_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Least time between two deltas of a part. Text that comes sooner is collected; text after a pause is sent at once. Milliseconds.
pub const DELTA_WINDOW_MS: u64 = 25;
/// Collected text above this is sent at once; bytes.
pub const DELTA_BYTES: usize = 512;
/// Streamed text is stored as a chunk after this long; milliseconds.
pub const CHUNK_WINDOW_MS: u64 = 1_500;
/// Streamed text is stored as a chunk beyond this; bytes.
pub const CHUNK_BYTES: usize = 2_048;
/// How long a worker counts as alive after its last heartbeat; milliseconds.
pub const LEASE_TTL_MS: u64 = 6_000;
/// Time between heartbeats of a worker; milliseconds.
pub const HEARTBEAT_MS: u64 = 2_000;
/// Poll interval of a worker for work whose message was lost; milliseconds.
pub const POLL_MS: u64 = 1_000;
/// Time between two counts of all sessions that a worker shows in its metrics; milliseconds.
pub const SURVEY_MS: u64 = 10_000;
/// Take-overs of one session without any progress before it is quarantined.
pub const ATTEMPTS_MAX: i16 = 5;
/// Failed attempts after which a session is a suspect. A worker runs one suspect at a time, so the next crash points to one session. After
/// a single crash all sessions go on at once.
pub const ATTEMPTS_SUSPECT: i16 = 2;
/// First pause before a suspect is tried again after its loop failed, doubled each time; milliseconds.
pub const SUSPECT_PAUSE_MS: u64 = 5_000;
/// Pause of a session that an older worker could not read; milliseconds.
pub const UNREADABLE_PAUSE_MS: u64 = 5_000;
/// Aborted sessions without a loop that one worker closes at the same time, outside its slots: an abort must not wait for a slot.
pub const ABORTS_PARALLEL_MAX: usize = 4;
/// Grace for running streams when a process is asked to stop; milliseconds. With the bounds below, and a second each for
/// its tasks and its last spans, a process ends within 30 s.
pub const DRAIN_GRACE_MS: u64 = 25_000;
/// Time for loops that are told to end at once to hand their session over; milliseconds.
pub const DRAIN_FORCED_MS: u64 = 1_500;
/// Time to give a lease back when a worker ends, and twice the time to close its connections; milliseconds.
pub const LEASE_STOP_MS: u64 = 1_000;
/// Events queued for one slow subscriber. With more, the gateway drops the queue and reads from Postgres.
pub const SUBSCRIBER_QUEUE_MAX: usize = 256;
/// Time between heartbeats on an event stream; milliseconds.
pub const STREAM_HEARTBEAT_MS: u64 = 10_000;
/// Events in one read from Postgres while a subscriber catches up; a subscriber may hold two such pages.
pub const EVENTS_PAGE: i64 = 250;
/// Bytes of a session's unified diff in one answer.
pub const DIFF_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Running loops of one tenant before its further sessions wait.
pub const TENANT_RUNNING_MAX: u32 = 64;
/// Blocks (texts, reasonings, tool calls, unknown ones) of one model answer.
pub const MODEL_BLOCKS_MAX: usize = 4_096;
/// Bytes of a provider's error body that are read and kept.
pub const MODEL_ERROR_BODY_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a provider's error text that are shown.
pub const MODEL_ERROR_MESSAGE_BYTES_MAX: usize = 1_024;
/// Providers of one configuration, and models of one provider.
pub const PROVIDERS_MAX: usize = 64;
/// See [`PROVIDERS_MAX`].
pub const PROVIDER_MODELS_MAX: usize = 512;

// Sandbox: isolation, execs, files, workspaces.

/// A session's sandbox ends after this long without a running exec and without a call, so that a waiting session holds
/// no process; milliseconds. Starting it again costs some 10 ms.
pub const SANDBOX_IDLE_MS: u64 = 60_000;
/// Time that operators still see a worker whose lease ended, unless it owns a session; milliseconds. A day covers a night without staff.
pub const WORKER_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;
/// Time that a tombstone is kept; a client that was away for longer starts anew; milliseconds.
pub const TOMBSTONE_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// How long the highest epoch of a session is kept on a machine without being raised, so that no late worker of a closed
/// session gets in; milliseconds. No worker hangs for 30 days.
pub const SANDBOX_FENCE_KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// Longest snapshot, diff, export or removal of a workspace; milliseconds.
pub const WORKSPACE_HELPER_MS: u64 = 120_000;
/// Bytes of the per-file statistics of a diff: some 50,000 files.
pub const DIFF_STATS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Execs of one session that run at the same time.
pub const EXECS_RUNNING_MAX: usize = 16;
/// Bytes of an exec id.
pub const EXEC_ID_BYTES_MAX: usize = 128;
/// Bytes of one command: below Linux' limit of 128 KiB for one argument.
pub const EXEC_COMMAND_BYTES_MAX: usize = 120 * 1024;
/// Time between SIGTERM and SIGKILL; milliseconds.
pub const EXEC_KILL_GRACE_MS: u64 = 2_000;
/// Bytes of a terminal's input that its program has not read yet; as many as the kernel buffers in addition.
pub const TERMINAL_INPUT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a path: Linux' PATH_MAX.
pub const PATH_BYTES_MAX: usize = 4_096;
/// See [`LINES`].
pub const LINES_MAX: u32 = 10_000;
/// Characters of one line that a read or a search gives.
pub const LINE_CHARS: u32 = 2_000;
/// Files that one walk looks at; what is beyond is left out and said so.
pub const WALK_FILES_MAX: usize = 200_000;
/// How long a write is repeated while its outcome is in doubt; beyond it the session is left to another worker. Milliseconds.
pub const RECORD_RETRY_MS: u64 = 60_000;
/// Longest wait of a loop for one answer of Postgres; milliseconds. Above the server's own limit for a statement: only a
/// connection that lost its other end takes longer.
pub const STORE_ANSWER_MS: u64 = 20_000;
/// Longest wait of a worker's lease for its renewal; milliseconds. With the pause between two, below the time that the lease
/// is trusted.
pub const LEASE_ANSWER_MS: u64 = 2_000;
/// How long a loop waits for a sandbox service that does not answer before the turn fails; milliseconds.
pub const SANDBOX_WAIT_MS: u64 = 30_000;
/// Time between two stored views of a running command's output; milliseconds.
pub const TOOL_PROGRESS_MS: u64 = 1_000;
/// Newest output of a running command in such a view; bytes.
pub const TOOL_PROGRESS_BYTES: usize = 30_000;
/// Sessions that one pass of the sweep reads from Postgres.
pub const SWEEP_MAX: i64 = 1_000;
/// Looks of `SWEEP_MAX` sessions that fill an emptied Redis again. A million is beyond any backlog; nobody claims meanwhile,
/// so it must end also while sessions come in faster than they are read.
pub const REBUILD_LOOKS_MAX: u32 = 1_000;
/// Time between two signs of life of a loop to its subscribers; milliseconds.
pub const LOOP_BEAT_MS: u64 = 5_000;

// The ready queue.

/// Slot time that every claim is charged at least; milliseconds. About what a step costs; also how far apart two virtual
/// times must be before one session gives its slot up for another.
pub const QUEUE_QUANTUM_MS: u64 = 5_000;
/// Largest distance in virtual time between a tenant or class that has work again and those that wait: slot time that it used while the
/// others had no work counts only up to this. Milliseconds of virtual time.
pub const QUEUE_DEBT_MAX_MS: u64 = 60_000;
/// Time that the queue remembers a tenant without ready or running sessions, and its share; milliseconds. Far longer than a debt lasts.
pub const QUEUE_TENANT_IDLE_MS: u64 = 3_600_000;
/// The newest interval between two claims of a tenant counts one part in this many for the smoothed one.
pub const QUEUE_INTERVAL_SMOOTHING: u32 = 8;
/// Weight of a tenant whose share the queue does not know.
pub const TENANT_WEIGHT_DEFAULT: u32 = 1;

// Snapshots of a workspace.

/// Files of one difference between snapshots, and of one revert.
pub const SNAPSHOT_FILES_MAX: usize = 10_000;

// Settings of repositories, projects and tenants.

/// Bytes of one file of settings, or of one agent or command in Markdown: far above what people write.
pub const SETTINGS_FILE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of all files of settings of one project together, with the texts they refer to. Every running session keeps them.
pub const SETTINGS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Files of settings of one project, over all levels: every agent and every command may be one.
pub const SETTINGS_FILES_MAX: usize = 400;
/// Levels of objects and lists inside each other: OpenCode's own settings need eight.
pub const SETTINGS_DEPTH_MAX: usize = 32;
/// Values, keys counted with them, in one file of settings.
pub const SETTINGS_VALUES_MAX: usize = 10_000;
/// Mistakes in settings that are listed; of further ones only the number is shown.
pub const SETTINGS_PROBLEMS_MAX: usize = 100;
/// Agents of one project: a model chooses among their descriptions, which it reads at every step.
pub const SETTINGS_AGENTS_MAX: usize = 100;
/// Names of files with instructions, over all levels: each file is read at every step.
pub const SETTINGS_INSTRUCTIONS_MAX: usize = 64;

// What a repository tells agents.

/// Bytes of the instructions that come with one file that is read: with the file below what a model reads of one answer.
pub const GUIDANCE_REMINDER_BYTES_MAX: usize = 8 * 1024;
/// Files of a skill that are named to the model.
pub const SKILL_FILES_MAX: u32 = 50;

// The context of a model.

/// Newest turns of which no output is left out.
pub const PRUNE_TURNS_KEPT: usize = 2;
/// About how many tokens a picture or a document has.
pub const MEDIA_TOKENS: u64 = 1_500;
/// Characters of one tool's output that a summary is made from.
pub const SUMMARY_TOOL_CHARS_MAX: usize = 2_000;
/// How old the last sign of a worker's main runtime may be when the lease is renewed; milliseconds. A worker that is stuck
/// must not look alive.
pub const LEASE_WATCHDOG_MS: u64 = 1_500;
/// Time before the end of its lease from which a worker starts nothing new; milliseconds.
pub const LEASE_MARGIN_MS: u64 = 1_500;
/// Pending nudges of one worker. Further ones are dropped; the next renewal or sweep finds the inputs.
pub const NUDGES_MAX: usize = 1_024;
/// Time after a start of Postgres before workers count as dead, because all of them look dead at first; milliseconds.
pub const POSTGRES_GRACE_MS: u64 = 10_000;
/// Sessions that are on their way from one sweep to Redis at once: one after the other would be mostly waiting.
pub const SWEEP_ENQUEUES_PARALLEL_MAX: usize = 50;

// What sessions changed, and how it is taken back.

/// How long a loop waits for a snapshot before it goes on without; milliseconds. The first one of a large repository reads all
/// of it; the sandbox goes on with it and the next one is fast.
pub const SNAPSHOT_WAIT_MS: u64 = 5_000;
/// The same for a turn that is stopped: whoever aborts waits for it; milliseconds.
pub const SNAPSHOT_STOP_WAIT_MS: u64 = 1_000;
/// Bytes of the patches that a message, a session's event or a revert carries: every reader of the conversation gets them. Files
/// beyond have their numbers only.
pub const SUMMARY_DIFF_BYTES_MAX: u32 = 256 * 1024;
/// Time that a hold for a revert lasts without renewal; milliseconds. After a crash of the gateway, the session accepts prompts again after
/// this time.
pub const REVERT_HOLD_MS: u64 = 10_000;
/// How long a revert may take; milliseconds. The gateway renews its hold so long, and people wait for prompts.
pub const REVERT_WAIT_MS: u64 = 45_000;
/// Commands of the shell whose output one command of a prompt puts into it: each may run for two minutes.
pub const COMMAND_SHELLS_MAX: usize = 16;
/// Files and agents that one command of a prompt may name: each is looked for.
pub const COMMAND_MENTIONS_MAX: usize = 32;

// Titles that a small model writes.

/// Bytes of the prompt that it is made from: what a conversation is about stands at its beginning.
pub const TITLE_PROMPT_BYTES_MAX: usize = 8 * 1024;
/// Tokens of the answer: a line, and room for a model that cannot but think before.
pub const TITLE_TOKENS_MAX: u64 = 4_096;
/// Attempts at the call: a moment's overload is worth a second one, and no title is worth more.
pub const TITLE_ATTEMPTS_MAX: u32 = 2;
/// Pause between them when the provider names none; milliseconds.
pub const TITLE_RETRY_MS: u64 = 1_000;
/// How long all attempts may take together; milliseconds. They run beside the first step.
pub const TITLE_CALL_MS: u64 = 60_000;
/// How long the end of a turn waits for a title that is still being written; milliseconds. People see the answer already,
/// and nobody writes a title later.
pub const TITLE_WAIT_MS: u64 = 3_000;

// Model calls.

/// Longest wait for the connection to a provider; milliseconds.
pub const MODEL_CONNECT_TIMEOUT_MS: u64 = 10_000;
/// Longest model answer from head to end: keep-alives alone must not hold a turn for ever. Milliseconds.
pub const MODEL_ANSWER_TIMEOUT_MS: u64 = 3_600_000;
/// Longest wait for the head of a model's answer, unless the provider's settings say otherwise; milliseconds.
pub const MODEL_HEADER_TIMEOUT_MS: u64 = 60_000;
/// Longest silence inside a model's answer, unless the provider's settings say otherwise; milliseconds.
pub const MODEL_CHUNK_TIMEOUT_MS: u64 = 120_000;
/// Context of a model that neither the catalogue nor the settings describe; tokens.
pub const MODEL_CONTEXT_TOKENS_DEFAULT: u64 = 128_000;
/// Longest answer of a model that neither the catalogue nor the settings describe; tokens.
pub const MODEL_OUTPUT_TOKENS_DEFAULT: u64 = 8_192;
/// Bytes of one line of a model's event stream: a whole tool argument, escaped, still fits.
pub const MODEL_LINE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of one model answer on the wire: framing is many times the text, and no real answer comes near it.
pub const MODEL_ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Levels of tool arguments that are put together from paths: as deep as JSON may be.
pub const TOOL_ARGUMENTS_DEPTH_MAX: usize = 128;
/// Highest position in a list of tool arguments that are put together from paths: one number must not cost memory.
pub const TOOL_ARGUMENTS_ITEMS_MAX: usize = 65_536;
/// Tokens in one count of a provider's usage: far above any context. A larger number is a mistake and counts as not given.
pub const MODEL_USAGE_TOKENS_MAX: u64 = 1_000_000_000;
/// Levels of a tool's schema that are followed for a provider with a dialect of its own; deeper ones take anything.
pub const TOOL_SCHEMA_DEPTH_MAX: usize = 32;
/// Schemas inside a tool's schema that are translated for such a provider, its references followed; the rest take anything.
pub const TOOL_SCHEMA_NODES_MAX: usize = 2_000;

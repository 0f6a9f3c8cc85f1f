//! The bounds that several files share, each with its unit and its reason. Reaching one is a named error, never a silent cut. A bound that
//! only one file uses is a constant at the head of that file.

// Prompts and what clients ask for.

/// Bytes of one prompt's text: far more than people type, far less than a row or a model can take. Also those of the text of a part
/// that a client edits, and of an expanded command. Beyond it: `prompt_too_long`, `text_too_long` or `command_invalid`.
pub const PROMPT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of all files of one prompt, in their encoded form. Together with the texts they still fit into one gRPC
/// message. Beyond it: `files_too_large`.
pub const PROMPT_FILES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Bytes of a title or a name. Also those of a directory, and of the name of a tool, a command or a revision. Beyond it: `name_too_long`,
/// `directory_invalid`, `tool_name_invalid`, `command_invalid`, `revision_not_found`, `argument_invalid`, `settings_invalid` or
/// `config_invalid`.
pub const NAME_BYTES_MAX: usize = 200;
/// Entries of one page if the client sets no limit.
pub const PAGE_DEFAULT: u32 = 50;
/// Entries of one page at most. Over HTTP, a larger number counts as this one. Beyond it: `page_too_large`.
pub const PAGE_MAX: u32 = 200;
/// Inputs of one session that no loop has taken yet. Without this bound a stuck session could fill the table. Beyond it: `session_full`.
pub const INPUTS_PENDING_MAX: i64 = 1_000;
/// Bytes of the prompts and notes that one session accepts between two summaries: a loop has them in memory at once. Far more than
/// a model can take. Beyond it: `session_full`.
pub const SESSION_PROMPTS_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of a prompt that a session accepts beyond that bound, because its turn may begin with a summary.
pub const SESSION_PROMPT_BEYOND_BYTES: u64 = 64 * 1024;
/// Bytes of one page of messages, unless its first message is larger.
pub const MESSAGES_PAGE_BYTES: i64 = 4 * 1024 * 1024;
/// Bytes of a git bundle: of an upload, of an export and of a fork, so that every export can be uploaded again. Beyond it: `bundle_too_large`.
pub const BUNDLE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Bytes of one stored piece of a bundle: one row, well below Postgres' limits and cheap to stream.
pub const BUNDLE_PIECE_BYTES: usize = 1024 * 1024;
/// Shell commands whose output one command puts into its prompt: each may run for two minutes. Beyond it: `command_invalid`.
pub const COMMAND_SHELLS_MAX: usize = 16;

// Pages of the web.

/// Bytes of one page that a model asks for, decoded. Beyond it: `page_too_large`.
pub const WEB_PAGE_BYTES_MAX: usize = 5 * 1024 * 1024;

// Secrets.

/// Bytes of the name of a secret: as long as names of variables get. Beyond it: `secret_name_invalid`.
pub const SECRET_NAME_BYTES_MAX: usize = 100;
/// Bytes of the value of a secret. Keys and certificates take a few thousand. Beyond it: `secret_too_large`.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Secrets of one tenant, those of its projects included: at most 64 MiB of Postgres. Beyond it: `secrets_too_many`.
pub const SECRETS_MAX: i64 = 1_000;
/// Secrets that setup and install get. Beyond it: `settings_invalid`, `config_invalid` or `argument_invalid`.
pub const ENVIRONMENT_SECRETS_MAX: usize = 16;
/// URLs of the servers that may get the value of one secret. Beyond it: `secret_url_invalid`.
pub const SECRET_URLS_MAX: usize = 16;
/// Bytes of the reference of an image. Beyond it: `settings_invalid`, `config_invalid` or `image_reference_invalid`.
pub const IMAGE_REFERENCE_BYTES_MAX: usize = 512;
/// Rows about what one session reached of the network. Beyond it the oldest are removed.
pub const EGRESS_ACCESSES_MAX: i64 = 10_000;
/// Those of them that tell of refusals: a session that asks for invented hosts does not push out what it reached. Beyond it the oldest are removed.
pub const EGRESS_REFUSALS_MAX: i64 = 2_000;

// Turns, steps and their tool calls.

/// Model steps in one turn: stops a model that never ends. Beyond it: `needs_human`.
pub const STEPS_PER_TURN_MAX: u32 = 200;
/// Attempts at one model call after the first: OpenCode's number. After the last one the turn fails with the provider's error.
pub const MODEL_RETRIES_MAX: u32 = 5;
/// Longest back-off that a provider may ask for; a longer one fails the turn. Milliseconds.
pub const RETRY_AFTER_MAX_MS: u64 = 3_600_000;
/// Longest back-off during which a loop keeps its slot; a longer one parks the session. To park and resume costs two
/// writes and a read of the conversation. Milliseconds.
pub const BACK_OFF_IN_SLOT_MS: u64 = 2_000;
/// Subtasks of one root session over its whole life: stops an agent that starts subtasks endlessly. Further ones are refused, and the model
/// reads why.
pub const SUBTASKS_PER_TREE_MAX: i64 = 256;
/// Identical consecutive tool calls with the same answer after which the worker asks a person whether the model may continue: OpenCode's
/// number.
pub const DOOM_LOOP_CALLS: usize = 3;
/// Tool calls of one step that run at the same time. Further ones wait.
pub const TOOLS_PARALLEL_MAX: usize = 8;
/// Bytes of the arguments of one tool call. An answer with longer ones fails the turn. Beyond it: `answer_too_large`.
pub const TOOL_ARGUMENTS_BYTES_MAX: usize = 12 * 1024 * 1024;
/// Bytes of a tool's output that the model gets; a file that the model can read holds the rest.
pub const TOOL_OUTPUT_BYTES_MAX: usize = 50 * 1024;
/// Lines of a tool's output that the model gets. The file holds the rest of them, too.
pub const TOOL_OUTPUT_LINES_MAX: usize = 2_000;
/// Bytes of one picture or document that a tool returns: encoded in base64 it has 5 MB, which every provider accepts. A larger one is
/// refused, and the model reads why.
pub const TOOL_MEDIA_BYTES_MAX: usize = 3_932_160;
/// Pictures and documents that the tools of one step return: a batch reads at most this many files. A text takes the place of each further
/// one.
pub const STEP_MEDIA_MAX: usize = 10;

// Requests to people.

/// Time that people have to answer a request before it counts as refused, unless the worker's settings say otherwise: enough to
/// reach the next working day. Milliseconds.
pub const REQUEST_WAIT_MS: u64 = 24 * 3_600_000;
/// Time that people have to raise a spent budget, from the last prompt or step on; milliseconds. A person may be away for a week. Beyond it:
/// `budget_spent`.
pub const BUDGET_WAIT_MS: i64 = 7 * 24 * 3_600_000;
/// Bytes of a person's answer to a request. Beyond it: `answer_too_long`.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a rule's tool name and pattern together. Beyond it: `rule_invalid`, `settings_invalid` or `config_invalid`.
pub const PERMISSION_RULE_BYTES_MAX: usize = 1_024;

// Models.

/// Text of one part: a model that streams endlessly is stopped here. Bytes. An answer with a longer one fails the turn. Beyond it:
/// `answer_too_large`.
pub const PART_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest time for which streamed text is gathered because earlier text has not left the worker. Otherwise it is sent at once.
/// Milliseconds.
pub const DELTA_WAIT_MS: u64 = 25;
/// Streamed text is stored as a chunk beyond this size; bytes.
pub const CHUNK_BYTES: usize = 2_048;
/// Blocks (texts, reasonings, tool calls, unknown ones) in one model answer. An answer with more fails the turn. Beyond it:
/// `answer_too_large`.
pub const MODEL_BLOCKS_MAX: usize = 4_096;
/// Bytes of a provider's error body that are read and kept. The rest is cut.
pub const MODEL_ERROR_BODY_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a provider's error text that are shown. The rest is cut.
pub const MODEL_ERROR_MESSAGE_BYTES_MAX: usize = 1_024;
/// Providers of one configuration. A worker whose file has more does not start. Beyond it: `settings_invalid` or `config_invalid`.
pub const PROVIDERS_MAX: usize = 64;
/// Models of one provider. A worker whose file has more does not start. Beyond it: `settings_invalid` or `config_invalid`.
pub const PROVIDER_MODELS_MAX: usize = 512;
/// Estimated tokens of a picture or a document.
pub const MEDIA_TOKENS: u64 = 1_500;
/// Time limit of all attempts together; milliseconds. They run in parallel to the first step.
pub const TITLE_CALL_MS: u64 = 60_000;
/// Time for which the end of a turn waits for an unfinished title; milliseconds. People already see the answer, and later
/// turns write no title.
pub const TITLE_WAIT_MS: u64 = 3_000;

// The sandbox: execs, files, web.

/// Time after which a command of an agent is ended if its call names no other; milliseconds.
pub const EXEC_TIMEOUT_MS: u32 = 120_000;
/// Longest time that a call of an agent can name; milliseconds. A call with a larger number does not run, and the model reads why. What takes longer runs in the
/// background.
pub const EXEC_TIMEOUT_MAX_MS: u32 = 600_000;
/// Time after which a command of a person is ended if the person names no other; milliseconds. One hour: builds and test suites take longer than a
/// call of an agent, and a command that hangs must end even if no person watches it.
pub const SHELL_TIMEOUT_MS: u32 = 3_600_000;
/// Longest time that a person can name; milliseconds. Twelve hours: the command keeps a slot of a worker and a sandbox so long. Beyond it: `part_invalid`.
pub const SHELL_TIMEOUT_MAX_MS: u32 = 43_200_000;
/// Output of one command kept on disk; bytes. The rest of a command's output is dropped and counted. A worker may keep as much of another
/// tool's output. Beyond it: `file_too_large`.
pub const EXEC_OUTPUT_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Largest file that is read or written whole; bytes. Beyond it: `file_too_large`.
pub const FILE_BYTES_MAX: usize = 10 * 1024 * 1024;
/// A session's sandbox ends after this long without a running exec and without a call, so that a waiting session holds
/// no process; milliseconds. Starting it again costs some 10 ms.
pub const SANDBOX_IDLE_MS: u64 = 60_000;
/// Time for which a machine keeps the highest epoch of a session without a raise, so that it still refuses a late worker
/// of a closed session; milliseconds. No worker hangs for 30 days.
pub const SANDBOX_FENCE_KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// Longest snapshot, diff, export or removal of a workspace; milliseconds.
pub const WORKSPACE_HELPER_MS: u64 = 120_000;
/// Execs of one session that run at the same time. Beyond it: `execs_too_many`.
pub const EXECS_RUNNING_MAX: usize = 16;
/// Bytes of an exec id. Beyond it: `argument_invalid`.
pub const EXEC_ID_BYTES_MAX: usize = 128;
/// Bytes of one command: below Linux' limit of 128 KiB for one argument. Beyond it: `argument_invalid`.
pub const EXEC_COMMAND_BYTES_MAX: usize = 120 * 1024;
/// Time between SIGTERM and SIGKILL; milliseconds.
pub const EXEC_KILL_GRACE_MS: u64 = 2_000;
/// Bytes of a terminal's input that its program has not read yet; as many as the kernel buffers in addition. A single message with more is
/// invalid. Beyond it: `terminal_input_full` or `argument_invalid`.
pub const TERMINAL_INPUT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a path: Linux' PATH_MAX. Beyond it: `path_invalid`, `file_url_invalid`, `settings_invalid` or `config_invalid`.
pub const PATH_BYTES_MAX: usize = 4_096;
/// Lines that one read gives at most. A larger number counts as this one.
pub const LINES_MAX: u32 = 10_000;
/// Characters of one line that a read or a search gives.
pub const LINE_CHARS: u32 = 2_000;
/// Files that one directory walk visits. The result says that further files were left out.
pub const WALK_FILES_MAX: usize = 200_000;
/// Time for which a loop waits for an unresponsive sandbox service before the turn fails; milliseconds.
pub const SANDBOX_WAIT_MS: u64 = 30_000;

// Snapshots, diffs and reverts.

/// Bytes of a session's unified diff in one answer. A longer one is cut, and the answer says so. Also those of a patch that a client
/// applies. Beyond it: `argument_invalid`.
pub const DIFF_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of the per-file statistics of a diff: some 50,000 files. A difference between snapshots leaves out the rest, and says so. The diff
/// of a workspace is refused. Beyond it: `diff_too_large`.
pub const DIFF_STATS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Files of one difference between snapshots, and of one revert. Further files are not in the difference, which says so; the gateway
/// reverts them in several calls.
pub const SNAPSHOT_FILES_MAX: usize = 10_000;
/// Time for which a loop waits for a snapshot before it continues without it; milliseconds. The first snapshot of a large
/// repository reads all of it. The sandbox finishes it in the background, and the next one is fast.
pub const SNAPSHOT_WAIT_MS: u64 = 5_000;
/// Bytes of the patches in a message, a session's event or a revert: every reader of the conversation gets them. Further files
/// have only their line counts.
pub const SUMMARY_DIFF_BYTES_MAX: u32 = 256 * 1024;
/// Time that a hold for a revert lasts without renewal; milliseconds. If the gateway crashes, the session accepts prompts again after
/// this time.
pub const REVERT_HOLD_MS: u64 = 10_000;

// Leases, sweeps and takeovers.

/// Time after its last heartbeat for which a worker counts as alive; milliseconds.
pub const LEASE_TTL_MS: u64 = 6_000;
/// Time between heartbeats of a worker; milliseconds.
pub const HEARTBEAT_MS: u64 = 2_000;
/// Poll interval of a worker for work whose message was lost; milliseconds.
pub const POLL_MS: u64 = 1_000;
/// Takeovers of one session without any progress before it is quarantined. Beyond it: `session_quarantined`.
pub const ATTEMPTS_MAX: i16 = 5;
/// Failed attempts after which a session is a suspect. A worker runs one suspect at a time, so the next crash points to one session. After
/// a single crash all sessions continue at once.
pub const ATTEMPTS_SUSPECT: i16 = 2;
/// First pause before a suspect runs again after its loop failed; doubled each time; milliseconds.
pub const SUSPECT_PAUSE_MS: u64 = 5_000;
/// Pause of a session that an older worker could not read; milliseconds.
pub const UNREADABLE_PAUSE_MS: u64 = 5_000;
/// Aborted sessions without a loop that one worker closes at the same time, outside its slots: an abort must not wait for a slot. The next
/// sweep takes further ones.
pub const ABORTS_PARALLEL_MAX: usize = 4;
/// Grace for running streams when a process is asked to stop; milliseconds. With the bounds below, and a second each for
/// its tasks and its last spans, a process ends within 30 s.
pub const DRAIN_GRACE_MS: u64 = 25_000;
/// Time for an ending worker to give back its lease, and twice the time to close its connections; milliseconds.
pub const LEASE_STOP_MS: u64 = 1_000;
/// Time for which operators still see a worker whose lease ended, unless it owns a session; milliseconds. A day covers a night without
/// staff.
pub const WORKER_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;
/// Time for which a tombstone is kept; a client that was away for longer starts again; milliseconds.
pub const TOMBSTONE_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Sessions that one pass of the sweep reads from Postgres. The next pass reads the others.
pub const SWEEP_MAX: i64 = 1_000;
/// Time before the end of its lease in which a worker starts nothing new; milliseconds.
pub const LEASE_MARGIN_MS: u64 = 1_500;
/// Pending nudges of one worker. Further ones are dropped; the next renewal or sweep finds the inputs.
pub const NUDGES_MAX: usize = 1_024;

// Event streams.

/// Items queued for one slow subscriber. Then the stream waits until the subscriber reads.
pub const SUBSCRIBER_QUEUE_MAX: usize = 256;
/// Time between heartbeats on an event stream; milliseconds.
pub const STREAM_HEARTBEAT_MS: u64 = 10_000;
/// Events in one read from Postgres while a subscriber catches up.
pub const EVENTS_PAGE: i64 = 250;
/// Bytes of events after which such a page ends; the last event may exceed it. A larger event is read alone.
pub const EVENTS_PAGE_BYTES: i64 = 256 * 1024;

// Tenants and the ready queue.

/// Largest number of concurrent loops that an operator can allow a tenant. Beyond it: `limit_too_high`.
pub const TENANT_RUNNING_MOST: u32 = 100_000;
/// Running loops of one tenant before its further sessions wait.
pub const TENANT_RUNNING_MAX: u32 = 64;
/// Slot time that every claim is charged at least; milliseconds. It is about the cost of a step. It is also the distance
/// in virtual time from which one session gives up its slot for another.
pub const QUEUE_QUANTUM_MS: u64 = 5_000;
/// Largest distance in virtual time between a tenant or class that has work again and those that wait. Slot time that it used while the
/// others had no work counts only up to this bound. Milliseconds of virtual time.
pub const QUEUE_DEBT_MAX_MS: u64 = 60_000;
/// Time for which the queue remembers the share of a tenant without ready or running sessions; milliseconds. Far longer than a debt
/// lasts.
pub const QUEUE_TENANT_IDLE_MS: u64 = 3_600_000;
/// Divisor of the newest interval between two claims of a tenant in the smoothed interval: the newest one counts one
/// part in this many.
pub const QUEUE_INTERVAL_SMOOTHING: u32 = 8;
/// Weight of a tenant whose share the queue does not know.
pub const TENANT_WEIGHT_DEFAULT: u32 = 1;

// Settings.

/// Bytes of one settings file, or of one agent or command in Markdown: far more than people write. A larger file in a repository is not
/// read; the turn fails if the file may restrict agents. Beyond it: `settings_invalid`, `config_too_large` or `config_invalid`.
pub const SETTINGS_FILE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of all settings files of one project together, with the texts they refer to. Every running session keeps them in
/// memory. Files of a repository that are larger together are not all read. Beyond it: `config_too_large` or
/// `config_invalid`.
pub const SETTINGS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Settings files of one project, over all levels: every agent and every command may be a file. Further files of a repository are not read.
/// Beyond it: `config_too_large` or `config_invalid`.
pub const SETTINGS_FILES_MAX: usize = 400;
/// Levels of nested objects and lists: OpenCode's own settings need eight. Beyond it: `settings_invalid` or `config_invalid`.
pub const SETTINGS_DEPTH_MAX: usize = 32;
/// Values and keys together in one settings file. Beyond it: `settings_invalid` or `config_invalid`.
pub const SETTINGS_VALUES_MAX: usize = 10_000;
/// Listed mistakes in settings; of further ones only the number is shown.
pub const SETTINGS_PROBLEMS_MAX: usize = 100;
/// Agents of one project: a model reads all their descriptions at every step to choose among them. Beyond it: `settings_invalid` or
/// `config_invalid`.
pub const SETTINGS_AGENTS_MAX: usize = 100;
/// Bytes of a delivery of a forge: a comment has 64 KiB at most, and a push some hundred commits. Beyond it: `body_too_large`.
pub const DELIVERY_BYTES_MAX: usize = 5 * 1024 * 1024;
/// Files of a commit that one call reads for a prompt. A prompt that names more opens the files of its session.
pub const SOURCE_FILES_MAX: usize = 8;
/// Names of instruction files, over all levels: each file is read at every step. Beyond it: `settings_invalid` or `config_invalid`.
pub const SETTINGS_INSTRUCTIONS_MAX: usize = 64;

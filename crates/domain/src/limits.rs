//! Every bound, with its unit and its reason. Reaching one is a named error, never a silent cut.

/// Bytes of one prompt's text: far above what people type, far below what would hurt a row or a model.
pub const PROMPT_BYTES_MAX: usize = 1024 * 1024;
/// Parts of one prompt: far above what a person attaches.
pub const PROMPT_PARTS_MAX: usize = 64;
/// Bytes of all files of one prompt, as they are written in it: with its texts still one message of the wire.
pub const PROMPT_FILES_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Tools that one prompt switches: more than there are.
pub const TOOL_SWITCHES_MAX: usize = 100;
/// Bytes of the schema of a structured answer: goes with every model call of its turn.
pub const OUTPUT_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// How often a structured answer that does not fit is asked for again, unless the prompt says otherwise: OpenCode's number.
pub const STRUCTURED_RETRIES: u32 = 2;
/// How often a prompt may ask for that: a model that failed ten times fails again.
pub const STRUCTURED_RETRIES_MAX: u32 = 10;
/// Bytes of the messages in one answer, beyond which the page ends: leaves room for one more message of the wire.
pub const MESSAGES_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of an idempotency key.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;
/// Bytes of a title or a name.
pub const NAME_BYTES_MAX: usize = 200;
/// Entries of one page when the caller names no number, and at most.
pub const PAGE_DEFAULT: u32 = 50;
/// See [`PAGE_DEFAULT`].
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
/// First back-off of a model call, doubled each time; milliseconds.
pub const RETRY_BASE_MS: u64 = 2_000;
/// Longest back-off when the provider names none; milliseconds.
pub const RETRY_CAP_MS: u64 = 30_000;
/// Longest back-off that a provider may ask for; beyond it the turn fails and says so. Milliseconds.
pub const RETRY_AFTER_MAX_MS: u64 = 3_600_000;
/// Longest back-off that keeps its slot; a longer one parks the session. Parking and coming back costs two writes and a
/// read of the conversation. Milliseconds.
pub const BACK_OFF_IN_SLOT_MS: u64 = 2_000;
/// How long people have to answer a request before it counts as refused, unless the worker's settings say otherwise: the
/// next working day. Milliseconds.
pub const REQUEST_WAIT_MS: u64 = 24 * 3_600_000;
/// Bytes of a person's answer to a request.
pub const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Rules of permission that a session may be made with.
pub const PERMISSION_RULES_MAX: usize = 100;
/// Bytes of a rule's tool name and pattern together.
pub const PERMISSION_RULE_BYTES_MAX: usize = 1_024;
/// Largest share of the slots that a tenant may be given; the least is 1.
pub const TENANT_WEIGHT_MAX: u32 = 1_000;
/// Most loops that a tenant may be allowed to run at once.
pub const TENANT_RUNNING_MOST: u32 = 100_000;
/// Generations of subtasks below a root session: what a deeper tree would win, it loses to its own coordination.
pub const SUBTASK_DEPTH_MAX: i16 = 5;
/// Subtasks of one root session over its life: stops an agent that multiplies.
pub const SUBTASKS_PER_TREE_MAX: i64 = 256;
/// Tool calls of a subtask that its parent shows.
pub const SUBTASK_SUMMARY_MAX: usize = 50;
/// Least time between two reports of a subtask to its parent; milliseconds.
pub const SUBTASK_REPORT_MS: u64 = 1_000;
/// Bytes of a subtask's answer that its parent's model reads; the whole is in the child session.
pub const SUBTASK_ANSWER_BYTES_MAX: usize = 50 * 1024;
/// Identical consecutive tool calls with the same answer after which a person is asked whether the model may go on so:
/// OpenCode's number.
pub const DOOM_LOOP_CALLS: usize = 3;
/// Tool calls of one model answer: more are refused to the model one by one.
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
/// Least time between two deltas of a part: what comes sooner is gathered, what comes after a pause goes out at once.
/// Milliseconds.
pub const DELTA_WINDOW_MS: u64 = 25;
/// Deltas gathered beyond this are sent at once; bytes.
pub const DELTA_BYTES: usize = 512;
/// Streamed text is stored as a chunk after this long; milliseconds.
pub const CHUNK_WINDOW_MS: u64 = 1_500;
/// Streamed text is stored as a chunk beyond this; bytes.
pub const CHUNK_BYTES: usize = 2_048;
/// How long a worker counts as alive after its last heartbeat; milliseconds.
pub const LEASE_TTL_MS: u64 = 6_000;
/// Time between heartbeats of a worker; milliseconds.
pub const HEARTBEAT_MS: u64 = 2_000;
/// Time between two looks of a worker for work that no message announced; milliseconds.
pub const POLL_MS: u64 = 1_000;
/// Time between two counts of all sessions that a worker shows in its metrics; milliseconds.
pub const SURVEY_MS: u64 = 10_000;
/// Take-overs of one session without any progress before it is quarantined.
pub const ATTEMPTS_MAX: i16 = 5;
/// Failed attempts after which a session is a suspect: a worker runs one suspect at a time, so that the next crash
/// convicts one session and blames no other. One crash alone blames nobody: all its sessions go on at once.
pub const ATTEMPTS_SUSPECT: i16 = 2;
/// First pause before a suspect is tried again after its loop failed, doubled each time; milliseconds.
pub const SUSPECT_PAUSE_MS: u64 = 5_000;
/// Pause before a session is offered again that an older worker could not read; milliseconds.
pub const UNREADABLE_PAUSE_MS: u64 = 5_000;
/// Aborted sessions without a loop that one worker closes at once, beyond its slots: an abort must not wait for one.
pub const ABORTS_PARALLEL_MAX: usize = 4;
/// Grace for running streams when a process is asked to stop; milliseconds. With the bounds below, and a second each for
/// its tasks and its last spans, a process ends within 30 s.
pub const DRAIN_GRACE_MS: u64 = 25_000;
/// Time for loops that are told to end at once to hand their session over; milliseconds.
pub const DRAIN_FORCED_MS: u64 = 1_500;
/// Time to give a lease back when a worker ends, and twice the time to close its connections; milliseconds.
pub const LEASE_STOP_MS: u64 = 1_000;
/// Events kept for one subscriber that reads slowly, beyond which it is caught up from Postgres.
pub const SUBSCRIBER_QUEUE_MAX: usize = 256;
/// Time between heartbeats on an event stream; milliseconds.
pub const STREAM_HEARTBEAT_MS: u64 = 10_000;
/// Events read from Postgres at once while a subscriber is caught up; of one subscriber there may be two such pages.
pub const EVENTS_PAGE: i64 = 250;
/// Bytes of a session's unified diff in one answer.
pub const DIFF_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Running loops of one tenant before its further sessions wait.
pub const TENANT_RUNNING_MAX: u32 = 64;
/// Bytes of one line of a model's event stream: a whole tool argument, escaped, still fits.
pub const MODEL_LINE_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of one model answer on the wire: framing is many times the text, and no real answer comes near it.
pub const MODEL_ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Blocks (texts, reasonings, tool calls, unknown ones) of one model answer.
pub const MODEL_BLOCKS_MAX: usize = 4_096;
/// Bytes of a provider's error body that are read and kept.
pub const MODEL_ERROR_BODY_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a provider's error text that are shown.
pub const MODEL_ERROR_MESSAGE_BYTES_MAX: usize = 1_024;
/// Longest wait for the connection to a provider; milliseconds.
pub const MODEL_CONNECT_TIMEOUT_MS: u64 = 10_000;
/// Longest wait for the head of a model's answer, unless the provider's settings say otherwise; milliseconds.
pub const MODEL_HEADER_TIMEOUT_MS: u64 = 60_000;
/// Longest silence inside a model's answer, unless the provider's settings say otherwise; milliseconds.
pub const MODEL_CHUNK_TIMEOUT_MS: u64 = 120_000;
/// Longest model answer from head to end: keep-alives alone must not hold a turn for ever. Milliseconds.
pub const MODEL_ANSWER_TIMEOUT_MS: u64 = 3_600_000;
/// Context of a model that neither the catalogue nor the settings describe; tokens.
pub const MODEL_CONTEXT_TOKENS_DEFAULT: u64 = 128_000;
/// Longest answer of a model that neither the catalogue nor the settings describe; tokens.
pub const MODEL_OUTPUT_TOKENS_DEFAULT: u64 = 8_192;
/// Providers of one configuration, and models of one provider.
pub const PROVIDERS_MAX: usize = 64;
/// See [`PROVIDERS_MAX`].
pub const PROVIDER_MODELS_MAX: usize = 512;

// Sandbox: isolation, execs, files, workspaces.

/// A session's sandbox ends after this long without a running exec and without a call, so that a waiting session holds
/// no process; milliseconds. Starting it again costs some 10 ms.
pub const SANDBOX_IDLE_MS: u64 = 60_000;
/// Longest wait for a starting sandbox to answer; milliseconds. It needs some 10 ms on an idle machine.
pub const SANDBOX_START_MS: u64 = 10_000;
/// Longest wait of a successor for an effect of its predecessor that is under way, before the predecessor's sandbox is
/// ended; milliseconds. Writing a file or starting a process takes far less even on a busy disk.
pub const SANDBOX_EFFECT_MS: u64 = 5_000;
/// How long a worker whose lease ended is shown to operators, unless a session still names it; milliseconds. A day covers
/// a night without anybody.
pub const WORKER_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;
/// How long it is kept that a session was deleted: whoever was away for longer reads anew; milliseconds.
pub const TOMBSTONE_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Sandboxes alive at once in one service unless it is told otherwise: each may use its whole memory limit.
pub const SANDBOXES_MAX: usize = 256;
/// Longest wait of a call for a place for its sandbox while all are taken; milliseconds. An idle one is ended for it at once,
/// so this is a wait for somebody's command.
pub const SANDBOX_PLACE_MS: u64 = 10_000;
/// One-shot helper sandboxes (clone, diff, export) at once in one service: each is bound by disk and CPU.
pub const SANDBOX_HELPERS_MAX: usize = 8;
/// Helpers of another kind at once: snapshots and the like, which a turn waits for and which take some 50 ms.
pub const SANDBOX_QUICK_HELPERS_MAX: usize = 8;
/// How long the highest epoch of a session is kept on a machine without being raised, so that no late worker of a closed
/// session gets in; milliseconds. No worker hangs for 30 days.
pub const SANDBOX_FENCE_KEPT_MS: u64 = 30 * 24 * 60 * 60 * 1_000;
/// Longest clone or unbundling; milliseconds.
pub const WORKSPACE_OPEN_MS: u64 = 600_000;
/// Longest snapshot, diff, export or removal of a workspace; milliseconds.
pub const WORKSPACE_HELPER_MS: u64 = 120_000;
/// Bytes of a bundle that a workspace exports.
pub const WORKSPACE_EXPORT_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Bytes of the per-file statistics of a diff: some 50,000 files.
pub const DIFF_STATS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Bytes of a helper's error output that are kept to find out what went wrong.
pub const HELPER_ERROR_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a git URL: browsers' and servers' usual limit.
pub const GIT_URL_BYTES_MAX: usize = 2_048;
/// Execs of one session that run at the same time.
pub const EXECS_RUNNING_MAX: usize = 16;
/// Finished execs and other tool calls of one session whose output is kept on disk; older ones are forgotten.
pub const EXECS_KEPT_MAX: usize = 500;
/// Bytes of all outputs of one session that are kept on disk; the oldest ones are forgotten. A hundred of the longest.
pub const OUTPUTS_KEPT_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of an exec id.
pub const EXEC_ID_BYTES_MAX: usize = 128;
/// Bytes of one command: below Linux' limit of 128 KiB for one argument.
pub const EXEC_COMMAND_BYTES_MAX: usize = 120 * 1024;
/// Bytes of the environment of one exec: with the command below Linux' limit for all arguments.
pub const EXEC_ENV_BYTES_MAX: usize = 64 * 1024;
/// Time between SIGTERM and SIGKILL; milliseconds.
pub const EXEC_KILL_GRACE_MS: u64 = 2_000;
/// How long output is awaited after the command itself has ended while a background process holds its pipe open;
/// milliseconds.
pub const EXEC_DRAIN_MS: u64 = 100;
/// Bytes of one read from an exec's pipe: the size of the pipe.
pub const EXEC_READ_BYTES: usize = 64 * 1024;
/// Bytes of a path: Linux' PATH_MAX.
pub const PATH_BYTES_MAX: usize = 4_096;
/// Bytes that a read of a file gives when the caller names no number.
pub const FILE_READ_BYTES: usize = 1024 * 1024;
/// Lines that a read of lines gives when the caller names no number, and at most.
pub const LINES: u32 = 2_000;
/// See [`LINES`].
pub const LINES_MAX: u32 = 10_000;
/// Characters of one line that a read or a search gives.
pub const LINE_CHARS: u32 = 2_000;
/// Bytes of all lines of one read when the caller names no number.
pub const LINES_BYTES: u32 = 50 * 1024;
/// Bytes that are passed over to reach the first wanted line: about a second of reading.
pub const LINES_SKIP_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Entries of a listing when the caller names no number.
pub const LIST_ENTRIES: u32 = 1_000;
/// Matches of a glob or a search when the caller names no number.
pub const SEARCH_ENTRIES: u32 = 100;
/// Entries of a listing, glob or search at most.
pub const SEARCH_ENTRIES_MAX: u32 = 10_000;
/// Files that one walk looks at; what is beyond is left out and said so.
pub const WALK_FILES_MAX: usize = 200_000;
/// Longest walk or search; what is not found by then is left out and said so. Milliseconds.
pub const WALK_MS: u64 = 15_000;
/// Larger files are left out of a search; bytes.
pub const GREP_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// File operations that wait inside one sandbox; four run at the same time.
pub const FILE_OPERATIONS_QUEUE_MAX: usize = 64;
/// Further tries of one call of the command line while the gateway is down: about three seconds, a restart behind a balancer.
pub const CLI_CALL_RETRIES_MAX: u32 = 4;
/// Reconnects of the command line in a row without any answer in between: about two minutes, a slow roll-out.
pub const CLI_RECONNECTS_MAX: u32 = 30;
/// Time between two looks of the command line at what subtasks ask, while some are open; milliseconds. A person does not
/// notice it, and it is two small queries.
pub const CLI_SUBTASKS_POLL_MS: u64 = 2_000;
/// First pause of the command line between two tries, doubled each time; milliseconds.
pub const CLI_BACKOFF_BASE_MS: u64 = 200;
/// Longest pause of the command line between two tries; milliseconds.
pub const CLI_BACKOFF_CAP_MS: u64 = 5_000;
/// Restarts of one child of `flotilla up` within a minute, beyond which the stack stops: it would only fail again.
pub const RESTARTS_PER_MINUTE_MAX: usize = 5;
/// Time that `flotilla up` gives all of its processes together to end; milliseconds.
pub const UP_STOP_MS: u64 = 30_000;
/// Time that `flotilla up` gives one service to become ready; milliseconds.
pub const UP_READY_MS: u64 = 60_000;
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
/// Sessions that one look of the sweeper takes from Postgres.
pub const SWEEP_MAX: i64 = 1_000;
/// Looks of `SWEEP_MAX` sessions that fill an emptied Redis again. A million is beyond any backlog; nobody claims meanwhile,
/// so it must end also while sessions come in faster than they are read.
pub const REBUILD_LOOKS_MAX: u32 = 1_000;
/// Time between two signs of life of a loop to its subscribers; milliseconds.
pub const LOOP_BEAT_MS: u64 = 5_000;
/// Tries to set the password of a role: as many databases of one cluster may be migrated at the same time.
pub const ROLE_TRIES_MAX: u32 = 100;

// The ready queue.

/// Slot time that every claim is charged at least; milliseconds. About what a step costs; also how far apart two virtual
/// times must be before one session gives its slot up for another.
pub const QUEUE_QUANTUM_MS: u64 = 5_000;
/// How far apart a tenant or a class that has work again and those who wait may be: what one used while the other did not
/// want it is not held against it for longer. Milliseconds of virtual time.
pub const QUEUE_DEBT_MAX_MS: u64 = 60_000;
/// How long the queue remembers a tenant without ready or running sessions, and its share; milliseconds. Far longer than
/// any debt matters.
pub const QUEUE_TENANT_IDLE_MS: u64 = 3_600_000;
/// The newest interval between two claims of a tenant counts one part in this many for the smoothed one.
pub const QUEUE_INTERVAL_SMOOTHING: u32 = 8;
/// Share of a tenant whose share the queue was not told.
pub const TENANT_WEIGHT_DEFAULT: u32 = 1;

// What providers send and are sent.

/// Tokens in one count of a provider's usage: far above any context. A larger number is a mistake and counts as not given.
pub const MODEL_USAGE_TOKENS_MAX: u64 = 1_000_000_000;
/// Levels of a tool's schema that are followed for a provider with a dialect of its own; deeper ones take anything.
pub const TOOL_SCHEMA_DEPTH_MAX: usize = 32;
/// Schemas inside a tool's schema that are translated for such a provider, its references followed; the rest take anything.
pub const TOOL_SCHEMA_NODES_MAX: usize = 2_000;
/// Levels of tool arguments that are put together from paths: as deep as JSON may be.
pub const TOOL_ARGUMENTS_DEPTH_MAX: usize = 128;
/// Highest position in a list of tool arguments that are put together from paths: one number must not cost memory.
pub const TOOL_ARGUMENTS_ITEMS_MAX: usize = 65_536;

// Snapshots of a workspace.

/// Untracked files above this are not in a snapshot; bytes. OpenCode's number: larger ones are data, not work.
pub const SNAPSHOT_FILE_BYTES_MAX: u64 = 2 * 1024 * 1024;
/// Paths of such files that are named to the caller.
pub const SNAPSHOT_LEFT_OUT_NAMED_MAX: usize = 20;
/// How long a snapshot is kept after it was given last; milliseconds. OpenCode's seven days.
pub const SNAPSHOT_KEPT_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// Time between two removals of old snapshots of one workspace; milliseconds. It reads all of them.
pub const SNAPSHOT_SWEEP_MS: u64 = 24 * 60 * 60 * 1_000;
/// What the snapshots of one workspace may take on disk, beside what its repository has anyway; bytes. As much as the files
/// of a workspace may take.
pub const SNAPSHOTS_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;
/// Files of one difference between snapshots, and of one revert.
pub const SNAPSHOT_FILES_MAX: usize = 10_000;
/// Bytes of one file's patch: more is no reading for people or models.
pub const SNAPSHOT_PATCH_BYTES_MAX: usize = 512 * 1024;

// Settings of repositories, projects and tenants.

/// Bytes of one file of settings, or of one agent or command in Markdown: far above what people write.
pub const SETTINGS_FILE_BYTES_MAX: usize = 256 * 1024;
/// Bytes of all files of settings of one project together, what they refer to included: they are kept for every session
/// that runs.
pub const SETTINGS_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Files of settings of one project, over all levels: every agent and every command may be one.
pub const SETTINGS_FILES_MAX: usize = 400;
/// Levels of objects and lists inside each other: OpenCode's own settings need eight.
pub const SETTINGS_DEPTH_MAX: usize = 32;
/// Values, keys counted with them, in one file of settings.
pub const SETTINGS_VALUES_MAX: usize = 10_000;
/// Bytes of one key of settings; patterns of permission are keys.
pub const SETTINGS_KEY_BYTES_MAX: usize = PERMISSION_RULE_BYTES_MAX;
/// Mistakes in settings that are told one by one; of the rest, only how many there are.
pub const SETTINGS_PROBLEMS_MAX: usize = 100;
/// Bytes of a wrong value that are shown with the mistake.
pub const SETTINGS_SHOWN_BYTES_MAX: usize = 60;
/// Agents of one project: a model chooses among their descriptions, which it reads at every step.
pub const SETTINGS_AGENTS_MAX: usize = 100;
/// Commands of one project.
pub const SETTINGS_COMMANDS_MAX: usize = 200;
/// Rules of permission in one list of settings: each call of a tool goes through all of them.
pub const SETTINGS_RULES_MAX: usize = 500;
/// Names of files with instructions, over all levels: each file is read at every step.
pub const SETTINGS_INSTRUCTIONS_MAX: usize = 64;
/// Bytes of a tool's output that settings may ask to be shown to the model.
pub const SETTINGS_TOOL_OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// Lines of a tool's output that settings may ask to be shown to the model.
pub const SETTINGS_TOOL_OUTPUT_LINES_MAX: u64 = 50_000;

// What a repository tells agents.

/// Bytes of one file of instructions: some 16,000 tokens, read by the model at every step.
pub const GUIDANCE_FILE_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all instructions of one call: a quarter of a usual context.
pub const GUIDANCE_BYTES_MAX: usize = 128 * 1024;
/// Files of instructions of one call.
pub const GUIDANCE_FILES_MAX: usize = 64;
/// Bytes of the instructions that come with one file that is read: with the file below what a model reads of one answer.
pub const GUIDANCE_REMINDER_BYTES_MAX: usize = 8 * 1024;
/// Things left out that are named.
pub const GUIDANCE_LEFT_OUT_MAX: usize = 50;
/// Bytes of one sentence about what is left out.
pub const GUIDANCE_SENTENCE_BYTES_MAX: usize = 512;
/// Skills of one repository: the model reads all their descriptions at every step.
pub const SKILLS_MAX: usize = 100;
/// Files and directories that are looked at in one directory of skills.
pub const SKILLS_WALK_MAX: usize = 10_000;
/// Bytes at the beginning of a skill in which its front matter must end.
pub const SKILL_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a skill's description.
pub const SKILL_DESCRIPTION_BYTES_MAX: usize = 1_024;
/// Files of a skill that are named to the model.
pub const SKILL_FILES_MAX: u32 = 50;

// The context of a model.

/// Longest answer that is asked for; tokens. OpenCode's number.
pub const OUTPUT_TOKENS_MAX: u64 = 32_000;
/// Room that is left below the longest prompt of a model, at most; tokens. OpenCode's number.
pub const COMPACTION_RESERVED_TOKENS: u64 = 20_000;
/// Least and most of the newest messages that are kept beside a summary; tokens. OpenCode's numbers.
pub const TAIL_TOKENS_MIN: u64 = 2_000;
/// See [`TAIL_TOKENS_MIN`].
pub const TAIL_TOKENS_MAX: u64 = 15_000;
/// Newest output of tools that is never left out; tokens. OpenCode's number.
pub const PRUNE_PROTECT_TOKENS: u64 = 40_000;
/// Least old output that is worth leaving out, for it costs the provider's cache; tokens. OpenCode's number.
pub const PRUNE_MINIMUM_TOKENS: u64 = 20_000;
/// Old output that the end of one turn leaves out at most, for all of it is written anew; tokens. The next ones do the rest.
pub const PRUNE_WRITTEN_TOKENS_MAX: u64 = 1_000_000;
/// Newest turns of which no output is left out.
pub const PRUNE_TURNS_KEPT: usize = 2;
/// About how many tokens a picture or a document has.
pub const MEDIA_TOKENS: u64 = 1_500;
/// Characters of one tool's output that a summary is made from.
pub const SUMMARY_TOOL_CHARS_MAX: usize = 2_000;
/// How old the last sign of a worker's main runtime may be when the lease is renewed; milliseconds. A worker that is stuck
/// must not look alive.
pub const LEASE_WATCHDOG_MS: u64 = 1_500;
/// So long before its lease ends a worker starts nothing new; milliseconds.
pub const LEASE_MARGIN_MS: u64 = 1_500;
/// Sessions that wait to be told of an abort or an answer, of one worker. What is beyond it, the next renewal or sweep tells.
pub const NUDGES_MAX: usize = 1_024;
/// After its start Postgres is given this long before workers count as dead: all of them look so at first; milliseconds.
pub const POSTGRES_GRACE_MS: u64 = 10_000;
/// Sessions that are on their way from one sweep to Redis at once: one after the other would be mostly waiting.
pub const SWEEP_ENQUEUES_PARALLEL_MAX: usize = 50;

// Messages and hints, which may be lost.

/// News of all sessions of one process that wait to be sent, beyond which it is dropped: a second of busy loops; readers
/// find gaps in Postgres.
pub const NEWS_QUEUE_MAX: usize = 4_096;
/// Nudges of one process that wait to be sent, beyond which they are dropped: the control row says the same. More than the
/// largest tree of sessions has.
pub const NUDGES_UNSENT_MAX: usize = 1_024;
/// Messages of one subscription that wait to be read, beyond which NATS drops them: as for [`NEWS_QUEUE_MAX`].
pub const NATS_RECEIVE_QUEUE_MAX: usize = 1_024;
/// How long a new reader of news waits for NATS before it begins without; milliseconds. People wait for their first event
/// meanwhile.
pub const NATS_JOIN_MS: u64 = 2_000;
/// Time between two looks of a reader whether NATS is back; milliseconds. It reads no more than a flag.
pub const NATS_LOOK_MS: u64 = 250;
/// How long Redis may take to answer, or to take a connection; beyond it, it counts as gone. Milliseconds.
pub const REDIS_ANSWER_MS: u64 = 1_000;
/// Sessions of one abort that Redis is told of at the same time: the whole tree in few round trips, and no queue that others
/// would wait behind.
pub const HINTS_PARALLEL_MAX: usize = 16;

// What sessions changed, and how it is taken back.

/// How long a loop waits for a snapshot before it goes on without; milliseconds. The first one of a large repository reads all
/// of it; the sandbox goes on with it and the next one is fast.
pub const SNAPSHOT_WAIT_MS: u64 = 5_000;
/// The same for a turn that is stopped: whoever aborts waits for it; milliseconds.
pub const SNAPSHOT_STOP_WAIT_MS: u64 = 1_000;
/// Bytes of the patches that a message, a session's event or a revert carries: every reader of the conversation gets them. Files
/// beyond have their numbers only.
pub const SUMMARY_DIFF_BYTES_MAX: u32 = 256 * 1024;
/// How long a hold for a revert lasts that nobody renews; milliseconds. When the gateway died, prompts are taken again after it.
pub const REVERT_HOLD_MS: u64 = 10_000;
/// How long a revert may take; milliseconds. The gateway renews its hold so long, and people wait for prompts.
pub const REVERT_WAIT_MS: u64 = 45_000;
/// Commands of the shell whose output one command of a prompt puts into it: each may run for two minutes.
pub const COMMAND_SHELLS_MAX: usize = 16;
/// Files and agents that one command of a prompt may name: each is looked for.
pub const COMMAND_MENTIONS_MAX: usize = 32;

// Titles that a small model writes.

/// Characters of such a title: OpenCode's number. Of a longer one the beginning stays.
pub const TITLE_CHARS_MAX: usize = 100;
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

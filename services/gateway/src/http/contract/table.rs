//! Every served operation. The router and the document are generated from this list.

use super::{
    operation::{Operation, ResponseShape, delete, get, patch, post, put},
    table_v2,
};
use crate::{
    http::v1::{
        catalogue,
        clients::{control, tui},
        edits,
        files::{read, skills, vcs},
        messages, operator, projects, requests, sessions,
        stream::live,
        terminals::pty,
        welcome, worktrees,
    },
    scope::Scope,
};

pub(in crate::http) fn operations() -> Vec<Operation> {
    let v1 = [
        of_server(),
        of_catalogue(),
        of_worktrees(),
        of_sessions(),
        of_messages(),
        of_requests(),
        of_files(),
        of_terminals(),
        of_clients(),
    ];
    v1.into_iter().flatten().chain(table_v2::operations()).collect()
}

fn of_server() -> Vec<Operation> {
    vec![
        get("/", welcome::page, "A page for people: what this server is, and how to attach. Needs no key")
            .answers(ResponseShape::Text(welcome::PAGE))
            .without_scope(),
        get("/global/health", catalogue::health, "Whether the service is up, and its version")
            .gives("{healthy:boolean version}"),
        get("/event", live::of_directory, "Events of the directory, until the client leaves")
            .query("{shapes?:'current'|'older'}")
            .answers(ResponseShape::Events("Event")),
        get("/global/event", live::of_tenant, "Events of all directories, or of the named one")
            .query("{shapes?:'current'|'older'}")
            .answers(ResponseShape::Events("{directory? project? payload:Event}")),
        get("/app", catalogue::health, "Whether the service is up, for editor extensions")
            .gives("{healthy:boolean version}"),
        post(
            "/instance/dispose",
            operator::dispose,
            "Tells the clients of the directory to read everything again",
        )
        .gives("boolean"),
        post(
            "/global/dispose",
            operator::dispose_all,
            "Tells all clients of the tenant to read everything again",
        )
        .gives("boolean"),
        post("/global/upgrade", operator::upgrade, "Not available: the operator upgrades this service")
            .gives("{success:boolean error}"),
        patch("/config", operator::settings, "Refused: settings bind every user of a project")
            .gives("Config"),
        patch("/global/config", operator::settings, "Refused: settings bind every user of a tenant")
            .gives("Config"),
        put("/auth/{provider}", operator::provider_key, "Refused: provider keys are managed by the operator")
            .gives("boolean"),
        delete(
            "/auth/{provider}",
            operator::provider_key,
            "Refused: provider keys are managed by the operator",
        )
        .gives("boolean"),
        post(
            "/provider/{provider}/oauth/authorize",
            operator::provider_key,
            "Refused: provider keys are managed by the operator",
        )
        .takes("{method:number inputs?:string{}}")
        .gives("any"),
        post(
            "/provider/{provider}/oauth/callback",
            operator::provider_key,
            "Refused: provider keys are managed by the operator",
        )
        .takes("{method:number code?}")
        .gives("boolean"),
        post("/log", catalogue::log, "Writes a line to the service's log")
            .takes("{service? level? message? extra?:any}")
            .gives("boolean")
            .needs(Scope::Read),
    ]
}

fn of_catalogue() -> Vec<Operation> {
    vec![
        get("/global/config", catalogue::config, "The default models").gives("Config"),
        get("/config", catalogue::config, "The default models").gives("Config"),
        get("/config/providers", catalogue::config_providers, "The providers, and the first model of each")
            .gives("{providers:Provider[] default:string{}}"),
        get("/provider", catalogue::providers, "The providers, all of them connected")
            .gives("{all:Provider[] default:string{} connected:string[]}"),
        get(
            "/provider/auth",
            catalogue::empty_map,
            "Always empty: provider keys are managed by the operator",
        )
        .gives("any{}"),
        get("/agent", catalogue::agents, "The agents").gives("Agent[]"),
        get("/command", catalogue::commands, "The commands that do not depend on a repository")
            .gives("Command[]"),
        get("/path", catalogue::path, "The client's directory in its own terms")
            .gives("{home state config worktree directory}"),
        get("/project", projects::list, "The projects").gives("Project[]"),
        get("/project/current", projects::current, "The project of the directory; `global` if there is none")
            .gives("Project"),
        post(
            "/project/git/init",
            projects::open,
            "The project of the directory; a caller with the scope `write` creates it if there is none",
        )
        .gives("Project")
        .needs(Scope::Read),
        patch(
            "/project/{id}",
            projects::update,
            "Updates a project's display settings; omitted fields are unchanged",
        )
        .takes("{name? icon?:{url? override? color?} commands?:{start?}}")
        .gives("Project"),
        get(
            "/project/{id}/directories",
            projects::directories,
            "The directories of a project and of its worktrees",
        )
        .gives("{directory}[]"),
        post(
            "/experimental/project/{id}/copy/refresh",
            projects::refresh_directories,
            "Reads the directories of a project again",
        )
        .answers(ResponseShape::Nothing)
        .needs(Scope::Read),
        get("/experimental/capabilities", catalogue::capabilities, "Server capabilities")
            .gives("{backgroundSubagents:boolean}"),
        get("/experimental/console", catalogue::console, "Always empty: this server has no console")
            .gives("{consoleManagedProviders:string[] switchableOrgCount:integer}"),
        get("/experimental/resource", catalogue::empty_map, "Always empty: this server has no MCP support")
            .gives("any{}"),
        get("/experimental/workspace", catalogue::empty_list, "Always empty").gives("any[]"),
        get("/experimental/workspace/status", catalogue::empty_list, "Always empty").gives("any[]"),
        get("/lsp", catalogue::empty_list, "Always empty: this server runs no language servers")
            .gives("any[]"),
        get("/formatter", catalogue::empty_list, "Always empty: this server runs no formatters")
            .gives("any[]"),
        get("/mcp", catalogue::empty_map, "Always empty: this server has no MCP support").gives("any{}"),
        get("/skill", skills::list, "The skills in the repository of the newest session")
            .gives("{name description? location content}[]"),
        get("/experimental/tool/ids", catalogue::tool_names, "The names of the tools").gives("string[]"),
        get("/experimental/tool", catalogue::tools, "The tools as models get them")
            .query("{provider model}")
            .gives("{id description parameters:any}[]"),
    ]
}

fn of_worktrees() -> Vec<Operation> {
    vec![
        get("/experimental/worktree", worktrees::list, "The directories of the project's worktrees")
            .gives("string[]"),
        post(
            "/experimental/worktree",
            worktrees::create,
            "Creates a worktree: a directory in which sessions begin on a branch of its own",
        )
        .takes("{name? startCommand?}")
        .gives("{name branch directory}"),
        delete(
            "/experimental/worktree",
            worktrees::remove,
            "Removes a worktree; its sessions stay in the directory of the project",
        )
        .takes("{directory}")
        .gives("boolean"),
        post(
            "/experimental/worktree/reset",
            worktrees::reset,
            "Lets a worktree begin anew, on another branch; its sessions stay in the directory of the project",
        )
        .takes("{directory}")
        .gives("boolean"),
    ]
}

fn of_sessions() -> Vec<Operation> {
    vec![
        get("/session", sessions::list, "Lists the sessions of the directory, last changed first")
            .query("{roots? start?:integer search? limit?:integer}")
            .gives("Session[]"),
        post("/session", sessions::create, "Creates a session")
            .takes("{title? agent? model?:{id providerID} permission?:Rule[] parentID?}")
            .gives("Session"),
        get(
            "/experimental/session",
            sessions::list_all,
            "Lists the sessions of all directories, or of the named one",
        )
        .query("{roots? start?:integer search? limit?:integer archived? cursor?:integer}")
        .gives("GlobalSession[]"),
        get("/session/status", sessions::status, "The state of the sessions that are not idle")
            .gives("{type}{}"),
        get("/session/{id}", sessions::get, "Gets a session").gives("Session"),
        patch("/session/{id}", sessions::update, "Renames or archives a session")
            .takes("{title? time?:{archived?:number}}")
            .gives("Session"),
        delete("/session/{id}", sessions::delete, "Deletes a session with its files and its subtasks")
            .gives("boolean"),
        get("/session/{id}/children", sessions::children, "Lists its subtasks, oldest first")
            .gives("Session[]"),
        get("/session/{id}/todo", sessions::todo, "Its to-do list").gives("Todo[]"),
        get("/session/{id}/diff", sessions::diff, "The changes of a prompt's turn; empty without a message")
            .query("{messageID?}")
            .gives("FileDiff[]"),
        post(
            "/session/{id}/fork",
            sessions::fork,
            "Creates a session with a copy of the history before a message",
        )
        .takes("{messageID?}")
        .gives("Session")
        .conflicts(),
        post("/session/{id}/abort", sessions::abort, "Aborts its turn and its subtasks; true for any id")
            .gives("boolean"),
        post("/session/{id}/revert", sessions::revert, "Reverts files and messages to a point")
            .takes("{messageID partID?}")
            .gives("Session")
            .conflicts(),
        post("/session/{id}/unrevert", sessions::unrevert, "Undoes a revert").gives("Session").conflicts(),
    ]
}

fn of_messages() -> Vec<Operation> {
    vec![
        get(
            "/session/{id}/message",
            messages::list,
            "Its newest messages, or those before a cursor, oldest first",
        )
        .query("{limit?:integer before?}")
        .gives("Message[]"),
        post("/session/{id}/message", messages::send, "Sends a prompt, and answers when the turn ends")
            .takes("Prompt")
            .gives("Message")
            .conflicts(),
        get("/session/{id}/message/{message}", messages::get, "Gets a message").gives("Message"),
        delete("/session/{id}/message/{message}", edits::remove_message, "Removes a message")
            .gives("boolean")
            .conflicts(),
        patch(
            "/session/{id}/message/{message}/part/{part}",
            edits::change_part,
            "Changes the text of a part",
        )
        .takes("{id messageID type:'text' text}")
        .gives("Part")
        .conflicts(),
        delete("/session/{id}/message/{message}/part/{part}", edits::remove_part, "Removes a part")
            .gives("boolean")
            .conflicts(),
        post(
            "/session/{id}/prompt_async",
            messages::send_async,
            "Sends a prompt, and answers when it is stored",
        )
        .takes("Prompt")
        .answers(ResponseShape::Nothing)
        .conflicts(),
        post("/session/{id}/command", messages::command, "Runs a command, and answers when the turn ends")
            .takes("{command arguments agent? model? messageID? variant? parts?:PromptPart[]}")
            .gives("Message")
            .conflicts(),
        post("/session/{id}/shell", messages::shell, "Runs a shell command, without a model")
            .takes("{command agent? model?:Model messageID?}")
            .gives("Message")
            .conflicts(),
        post("/session/{id}/init", messages::init, "Writes instructions for agents")
            .takes("{providerID modelID messageID?}")
            .gives("boolean")
            .conflicts(),
        post("/session/{id}/summarize", messages::summarize, "Compacts the session")
            .takes("{providerID modelID}")
            .gives("boolean")
            .conflicts(),
    ]
}

fn of_requests() -> Vec<Operation> {
    let reply = "{reply:'once'|'always'|'reject' message?}";
    vec![
        get("/permission", requests::permissions, "The tool calls that wait for approval")
            .gives("Permission[]"),
        post("/permission/{id}/reply", requests::reply_permission, "Allows or refuses a tool call")
            .takes(reply)
            .gives("boolean"),
        post(
            "/session/{id}/permissions/{permission}",
            requests::respond_permission,
            "Allows or refuses a tool call, for older clients",
        )
        .takes("{response:'once'|'always'|'reject'}")
        .gives("boolean"),
        get("/question", requests::questions, "The questions that wait for an answer").gives("Question[]"),
        post("/question/{id}/reply", requests::reply_question, "Answers a question")
            .takes("{answers:string[][]}")
            .gives("boolean"),
        post("/question/{id}/reject", requests::reject_question, "Rejects a question").gives("boolean"),
    ]
}

fn of_files() -> Vec<Operation> {
    vec![
        get("/file", read::list, "Lists a directory in the files of the newest session")
            .query("{path}")
            .gives("File[]"),
        get("/file/content", read::content, "Reads a file")
            .query("{path}")
            .gives("{type:'text'|'binary' content encoding? mimeType?}"),
        get("/file/status", catalogue::empty_list, "Always empty, as in OpenCode").gives("any[]"),
        get("/find", read::text, "Finds lines that match a regular expression")
            .query("{pattern}")
            .gives("Match[]"),
        get("/find/file", read::names, "Finds files by the letters of their paths, shortest first")
            .query("{query dirs? type? limit?:integer}")
            .gives("string[]"),
        get("/find/symbol", catalogue::empty_list, "Always empty, as in OpenCode")
            .query("{query?}")
            .gives("any[]"),
        get("/vcs", vcs::branch, "The branch of the newest session").gives("{branch?}"),
        get("/vcs/status", vcs::status, "The files that the newest session changed since it began")
            .gives("{file additions:integer deletions:integer status:'added'|'deleted'|'modified'}[]"),
        get(
            "/vcs/diff",
            vcs::patches,
            "The changed files with patches; both modes compare with the beginning of the session",
        )
        .query("{mode:'git'|'branch'}")
        .gives("FileDiff[]"),
        get("/vcs/diff/raw", vcs::raw, "All changes as one patch").answers(ResponseShape::Text(vcs::PATCH)),
        post(
            "/vcs/apply",
            vcs::apply,
            "Applies a patch to the files of the newest session; a patch that does not fit changes nothing",
        )
        .takes("{patch}")
        .gives("{applied:boolean}"),
    ]
}

fn of_terminals() -> Vec<Operation> {
    vec![
        get("/pty", pty::list, "Lists the terminals of the directory").gives("Terminal[]"),
        post("/pty", pty::create, "Starts a program at a new terminal of the newest session")
            .takes("{command? args?:string[] cwd? title? env?:string{}}")
            .gives("Terminal"),
        get("/pty/shells", pty::shells, "The shells that every sandbox has")
            .gives("{path name acceptable:boolean}[]"),
        get("/pty/{id}", pty::get, "Gets a terminal").gives("Terminal").needs(Scope::Write),
        put("/pty/{id}", pty::update, "Renames or resizes a terminal")
            .takes("{title? size?:{rows:integer cols:integer}}")
            .gives("Terminal"),
        delete("/pty/{id}", pty::delete, "Ends a terminal and its program").gives("boolean"),
        post("/pty/{id}/connect-token", pty::connect_token, "Issues a ticket for one connection of a page")
            .gives("{ticket expires_in:integer}"),
        // With a ticket, whose owner had the scope, or with a key.
        get("/pty/{id}/connect", pty::connect, "Connects to a terminal")
            .query("{cursor?:integer ticket?}")
            .answers(ResponseShape::Socket)
            .without_scope(),
    ]
}

fn of_clients() -> Vec<Operation> {
    let command = |operation: Operation| operation.gives("boolean");
    vec![
        command(post(
            "/tui/append-prompt",
            tui::append_prompt,
            "Types a text in the directory's terminal clients",
        ))
        .takes("{text}"),
        command(post("/tui/submit-prompt", tui::submit_prompt, "Submits the prompt in them")),
        command(post("/tui/clear-prompt", tui::clear_prompt, "Clears the prompt in them")),
        command(post(
            "/tui/execute-command",
            tui::execute_command,
            "Executes a command in them, such as `session.new`",
        ))
        .takes("{command}"),
        command(post("/tui/show-toast", tui::show_toast, "Shows a message in them for some milliseconds"))
            .takes("{title? message variant:'info'|'success'|'warning'|'error' duration?:integer}"),
        command(post("/tui/select-session", tui::select_session, "Shows a session in them"))
            .takes("{sessionID}"),
        command(post("/tui/publish", tui::publish, "Sends them one of the events of the other operations"))
            .takes("{type properties:any{}}"),
        command(post("/tui/open-help", tui::open_help, "Shows the help in them")),
        command(post("/tui/open-sessions", tui::open_sessions, "Shows the list of sessions in them")),
        command(post("/tui/open-themes", tui::open_themes, "Shows the list of themes in them")),
        command(post("/tui/open-models", tui::open_models, "Shows the list of models in them")),
        get("/tui/control/next", control::next, "Waits for the next of these commands")
            .gives("{path body:any}")
            .acts(),
        command(post(
            "/tui/control/response",
            control::response,
            "Accepts the response to a command, and drops it",
        ))
        .takes("any")
        .needs(Scope::Read),
    ]
}

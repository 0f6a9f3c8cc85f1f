# Where the configuration of a repository is: open.sh asks whether there is any, and configuration.sh reads it. Each file of configuration.sh lies in one of these.
configuration_places=(opencode.json opencode.jsonc .opencode .flotilla/config.yaml .devcontainer.json .devcontainer/devcontainer.json
  .claude/settings.json .claude/settings.local.json
  .github/workflows/copilot-setup-steps.yml)

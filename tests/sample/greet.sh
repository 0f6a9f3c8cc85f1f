# Greets people. Source it, then call `greet NAME`.
greet() {
  printf 'Hello, %s' "$1"
}

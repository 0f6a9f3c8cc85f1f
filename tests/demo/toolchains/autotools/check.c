int sum(int a, int b);
int main(void) { return sum(20, 30) == 50 ? 0 : 1; }

// Makes the mistake that its argument names, so that a tool can find it.
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int shared;

static void *count(void *unused) {
    for (int i = 0; i < 100000; i++) shared++;
    return unused;
}

int main(int argc, char **argv) {
    const char *mistake = argc > 1 ? argv[1] : "";
    if (strcmp(mistake, "overflow") == 0) {
        char *bytes = malloc(8);
        bytes[7 + argc / 2] = 1;
        free(bytes);
    } else if (strcmp(mistake, "leak") == 0) {
        char *volatile bytes = malloc(9);
        bytes = NULL;
    } else if (strcmp(mistake, "integer") == 0) {
        int sum = INT_MAX;
        sum += argc;
        printf("%d\n", sum);
    } else if (strcmp(mistake, "race") == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, count, NULL);
        count(NULL);
        pthread_join(thread, NULL);
    }
    return 0;
}

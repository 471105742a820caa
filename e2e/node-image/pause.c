/* The process that holds a pod's namespaces: sleeps until it is told to end, and takes away dead children. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_child(int signal) {
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

static void on_end(int signal) {
    (void)signal;
    _exit(0);
}

int main(void) {
    const struct sigaction child = {.sa_handler = on_child, .sa_flags = SA_NOCLDSTOP};
    const struct sigaction end = {.sa_handler = on_end};
    sigaction(SIGCHLD, &child, NULL);
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    for (;;) {
        pause();
    }
}

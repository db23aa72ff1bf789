#pragma once

namespace specdec {

/// From now on the loss of a mapped file's pages (SIGBUS: somebody cut a checkpoint short, or its disk fails) ends the
/// process with one line that names the file and exit code 2, as any other bad input. Once a program.
void report_bus_errors();

}  // namespace specdec

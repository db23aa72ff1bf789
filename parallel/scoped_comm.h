#pragma once

#include <mpi.h>

namespace specdec {

/// An MPI communicator that ends with this object.
class ScopedComm {
 public:
  ScopedComm() = default;
  ~ScopedComm() {
    if (comm_ != MPI_COMM_NULL) {
      MPI_Comm_free(&comm_);
    }
  }
  ScopedComm(const ScopedComm&) = delete;
  ScopedComm& operator=(const ScopedComm&) = delete;
  MPI_Comm* out() { return &comm_; }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace specdec

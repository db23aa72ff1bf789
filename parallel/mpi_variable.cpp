#include "parallel/mpi_variable.h"

#include <mpi.h>

#include <vector>

namespace specdec {
namespace {

std::string read_text(int index) {
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int length = 0;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &length) != MPI_SUCCESS) {
    return {};
  }
  std::vector<char> text(static_cast<std::size_t>(length) + 1);
  const bool read = length > 0 && MPI_T_cvar_read(handle, text.data()) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  return read ? text.data() : "";
}

bool is_text(int index) {
  int name_length = 0;
  int verbosity = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_T_enum enumeration = MPI_T_ENUM_NULL;
  int description_length = 0;
  int bind = 0;
  int scope = 0;
  return MPI_T_cvar_get_info(index, nullptr, &name_length, &verbosity, &type, &enumeration, nullptr,
                             &description_length, &bind, &scope) == MPI_SUCCESS &&
         type == MPI_CHAR;
}

}  // namespace

std::string mpi_variable(const char* name) {
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) {
    return {};
  }
  int index = 0;
  std::string text;
  if (MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS && is_text(index)) {
    text = read_text(index);
  }
  MPI_T_finalize();
  return text;
}

}  // namespace specdec

#include "runtime/interconnect_choice.h"

namespace specdec {

std::string name_of(const InterconnectChoice& choice) { return choice ? choice->name : kNativeInterconnect; }

std::string label_of(const InterconnectChoice& choice) { return (choice ? "modelled " : "") + name_of(choice); }

}  // namespace specdec

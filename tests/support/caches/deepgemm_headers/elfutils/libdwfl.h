// What DeepJIT declares of libdw, which it opens at run time if it is there; so nobody needs libdw's
// headers, and root to install them, to build with it.
#pragma once
#include <elf.h>
#include <sys/types.h>

typedef Elf64_Addr Dwarf_Addr;
typedef Elf64_Xword Dwarf_Word;
typedef Elf64_Word GElf_Word;
struct Elf;
struct Dwfl;
struct Dwfl_Line;
struct Dwfl_Module;
struct Dwfl_Callbacks {
    int (*find_elf)(Dwfl_Module*, void**, const char*, Dwarf_Addr, char**, Elf**);
    int (*find_debuginfo)(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                          GElf_Word, char**);
    int (*section_address)(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, GElf_Word,
                           const void*, Dwarf_Addr*);
    char** debuginfo_path;
};

extern "C" {
Dwfl* dwfl_begin(const Dwfl_Callbacks*);
int dwfl_linux_proc_report(Dwfl*, pid_t);
int dwfl_linux_proc_find_elf(Dwfl_Module*, void**, const char*, Dwarf_Addr, char**, Elf**);
int dwfl_report_end(Dwfl*, int (*)(Dwfl_Module*, void*, const char*, Dwarf_Addr, void*), void*);
Dwfl_Module* dwfl_addrmodule(Dwfl*, Dwarf_Addr);
const char* dwfl_module_addrname(Dwfl_Module*, Dwarf_Addr);
Dwfl_Line* dwfl_module_getsrc(Dwfl_Module*, Dwarf_Addr);
const char* dwfl_lineinfo(Dwfl_Line*, Dwarf_Addr*, int*, int*, Dwarf_Word*, Dwarf_Word*);
}

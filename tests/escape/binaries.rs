//! Tiny programs in machine code, for doors that no interpreter opens: the 32-bit ABI.

/// A static ELF program for x86-64 with `code` as its only instructions.
pub(crate) fn elf64(code: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    let mut file = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend(2_u16.to_le_bytes()); // executable
    file.extend(62_u16.to_le_bytes()); // x86-64
    file.extend(1_u32.to_le_bytes());
    file.extend((BASE + 120).to_le_bytes()); // entry
    file.extend(64_u64.to_le_bytes()); // program headers
    file.extend(0_u64.to_le_bytes());
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    file.extend(1_u32.to_le_bytes()); // load
    file.extend(5_u32.to_le_bytes()); // read, execute
    let size = 120 + code.len() as u64;
    for word in [0, BASE, BASE, size, size, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

/// A static ELF program for i386 with `code` as its only instructions.
pub(crate) fn elf32(code: &[u8]) -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    let mut file = Vec::from(*b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend(2_u16.to_le_bytes());
    file.extend(3_u16.to_le_bytes()); // i386
    for word in [1, BASE + 84, 52, 0, 0] {
        file.extend(u32::to_le_bytes(word));
    }
    for half in [52_u16, 32, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    let size = 84 + code.len() as u32;
    for word in [1, 0, BASE, BASE, size, size, 5, 0x1000] {
        file.extend(u32::to_le_bytes(word));
    }
    file.extend(code);
    file
}

/// `exit(code)` by the 64-bit ABI.
pub(crate) fn exit64(code: u8) -> Vec<u8> {
    let mut bytes = vec![0xb8, 60, 0, 0, 0, 0xbf, code, 0, 0, 0];
    bytes.extend([0x0f, 0x05]);
    bytes
}

/// A call by the 32-bit ABI (`int 0x80`), then `exit(42)` by the same.
pub(crate) fn call32(number: u32, first: u32, second: u32) -> Vec<u8> {
    let mut bytes = vec![0xb8];
    bytes.extend(number.to_le_bytes()); // mov eax, number
    bytes.push(0xbb);
    bytes.extend(first.to_le_bytes()); // mov ebx, first
    bytes.push(0xb9);
    bytes.extend(second.to_le_bytes()); // mov ecx, second
    bytes.extend([0x31, 0xd2, 0xcd, 0x80]); // xor edx, edx; int 0x80
    bytes.extend([0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80]);
    bytes
}

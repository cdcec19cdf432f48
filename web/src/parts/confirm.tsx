// A question before something that cannot be undone.
import { useEffect, useRef } from "react";

export interface ConfirmProps {
  title: string;
  text: string;
  verb: string;
  onConfirm: () => void;
  onClose: () => void;
}

export function Confirm({ title, text, verb, onConfirm, onClose }: ConfirmProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="confirm-title"
      onClose={onClose}
      className="m-auto w-[min(28rem,calc(100vw-2rem))] rounded-lg border border-line bg-surface p-5 text-ink shadow-lg backdrop:bg-black/50"
    >
      <h2 id="confirm-title" className="text-lg font-semibold">
        {title}
      </h2>
      <p className="mt-2 text-sm text-muted">{text}</p>
      <div className="mt-4 flex justify-end gap-2">
        <button type="button" className="button" onClick={() => dialog.current?.close()}>
          Keep
        </button>
        <button
          type="button"
          className="button button-bad"
          onClick={() => {
            dialog.current?.close();
            onConfirm();
          }}
        >
          {verb}
        </button>
      </div>
    </dialog>
  );
}

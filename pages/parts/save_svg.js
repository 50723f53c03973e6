// Saves the chart above a button as the SVG that is on the page; data-name: the name of the file.
if (!window.gapscopeSavesSvg) {
  window.gapscopeSavesSvg = true;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.gs-save");
    if (!button) return;
    const charts = [...document.querySelectorAll('[data-testid="stVegaLiteChart"] svg.marks')];
    const above = charts.filter((chart) => chart.compareDocumentPosition(button) & Node.DOCUMENT_POSITION_FOLLOWING);
    const drawn = above[above.length - 1];
    if (!drawn) return;
    const text = new XMLSerializer().serializeToString(drawn);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    link.download = `gapscope-${button.dataset.name}.svg`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
